"""Where the figures of a report come from, as terms and what is said of each."""

from bert_flow_tf.evaluation.report_cells import (
    Section,
    Terms,
    count,
    encoder_words,
    listed,
)
from bert_flow_tf.evaluation.report_provenance import KINDS


def sources_section(report: dict) -> Section:
    """The section on every source: encoder, data, protocol, seeds and versions, as far as they are recorded."""
    terms = [Terms(f"{one['source']} ({KINDS[one['kind']]})", _in_short(one), _terms(one)) for one in report["sources"]]
    return Section("sources", "Where the figures come from", terms=terms)


def _in_short(one):
    parts = [encoder_words(one["encoder"])] if one["encoder"] else []
    if one["pooling"]:
        parts.append(", ".join(one["pooling"]) + (" + flow" if one["flow"] else ""))
    if one["seeds"]:
        parts.append(f"seed{'s' if len(one['seeds']) > 1 else ''} {listed(one['seeds'])}")
    return "; ".join(parts)


def _terms(one):
    encoder, flow = one["encoder"], one["flow"]
    pairs = [("Folder" if one["kind"] not in ("evaluation", "calibration") else "File", one["path"])]
    if encoder:
        pairs.append(("Encoder", encoder_words(encoder)))
        pairs.append(("Handle", encoder["handle"]))
        if encoder["fingerprint"]:
            pairs.append(("Fingerprint", encoder["fingerprint"]))
    if one["pooling"]:
        pairs.append(("Pooling", ", ".join(one["pooling"])))
    if one["max_seq_length"]:
        pairs.append(("Longest input", f"{one['max_seq_length']} word pieces"))
    if flow:
        pairs.append(("Flow", _flow_words(flow)))
    if one["seeds"]:
        pairs.append(("Seeds", listed(one["seeds"])))
    if one["protocol"]:
        pairs.append(("Protocol", one["protocol"]))
    pairs += [("Data", _data_words(data)) for data in one["data"]]
    if one["versions"]:
        pairs.append(("Versions", ", ".join(f"{name} {version}" for name, version in one["versions"].items())))
    return pairs


def _flow_words(flow):
    parts = [flow["config"] or "a configuration of its own"]
    flags = flow["flags"] or {}
    if flow["learned_on"]:
        splits = {0: ", train", 1: ", all splits"}.get(flags.get("use_full_for_training"), "")
        parts.append(f"learned on {flow['learned_on']}{splits}")
    if flags.get("num_train_epochs") is not None:
        epochs = f"{flags['num_train_epochs']:g}"
        parts.append(f"{epochs} epoch{'' if epochs == '1' else 's'}")
    if flags.get("flow_learning_rate") is not None:
        parts.append(f"learning rate {flags['flow_learning_rate']:g}")
    if flags.get("flow_ddi"):
        parts.append("data-dependent initialisation")
    return "; ".join(parts)


def _data_words(data):
    parts = [f"{data['task']}, {data['split']}"]
    if data["pairs"] is not None:
        parts.append(f"{count(data['pairs'])} pairs")
    if data["path"]:
        parts.append(data["path"])
    if data["digest"]:
        parts.append(f"digest {data['digest']}")
    return "; ".join(parts)
