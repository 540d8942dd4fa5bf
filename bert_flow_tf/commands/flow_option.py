"""The option `--flow_model_config`, looked at before any work."""

from bert_flow_tf.errors import UserError


def check_flow_config(flow_model_config):
    """Raises `UserError` unless this is a shipped flow configuration's name, or a file that holds one."""
    from glow.config import GlowConfig

    try:
        GlowConfig.load(flow_model_config)
    except (ValueError, OSError) as error:
        raise UserError(f"--flow_model_config: {error}") from error
