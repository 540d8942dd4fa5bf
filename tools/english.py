"""Check docstrings and comments for plain English: `python -m tools.english [FOLDER ...]`.

A finding is a docstring's first line that begins with a clause, has more than 12 words (code in
backticks is one word) or ends within a sentence; a comment's sentence without a verb; or an odd
word. Print all; exit with 1 if there are any.
"""

import ast
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("bert_flow_tf", "glow", "tests", "tools", "benchmarks")
CLAUSE = re.compile(r"(What|How|Where|Which|Whether|As|That|Of)\b")
ODD = re.compile(
    r"\b(of which|none is|such a one|told|anew|begun|whom|has not got|owned)\b", re.IGNORECASE
)
STEMS = """
accept|add|allow|appl|ask|assum|avoid|be|becom|begin|belong|build|call|carr|catch|chang|check|
choos|clip|clos|com|compar|compil|comput|contain|convert|cop|cost|count|creat|cut|decid|delet|
depend|determin|differ|divid|do|document|draw|drop|encod|end|equal|exist|expect|fail|fall|
fetch|find|finish|fit|flatten|fold|follow|fus|get|giv|go|hav|help|highlight|hold|ignor|import|
includ|keep|kept|know|last|lead|learn|leav|let|lie|list|listen|load|lock|look|los|mak|mark|
match|mean|measur|multipl|need|open|overrid|pass|permut|pick|print|protect|put|rais|reach|read|
reduc|refus|reject|remov|renam|repeat|replac|report|return|round|rul|run|sav|say|scor|search|
see|send|set|shar|show|skip|sort|spell|split|spread|stand|start|stay|stop|stor|tak|take|test|
train|tri|try|turn|updat|us|var|wait|want|warn|work|writ
"""
FORMS = (
    "am|is|are|was|were|has|had|does|did|can|could|may|must|should|will|would|cannot|"
    "came|gave|made|took|wrote"
)
VERB = re.compile(
    rf"\b({FORMS}|({STEMS.replace(chr(10), '')})(e|y|s|es|ies|ed|ied)?)\b", re.IGNORECASE
)


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each comment; join neighbouring lines."""
    block, last = [], (0, 0)
    for token in tokenize.generate_tokens(path.open(encoding="utf-8").readline):
        if token.type == tokenize.COMMENT:
            if token.start != (last[0] + 1, last[1]):
                yield last[0], " ".join(block)
                block = []
            block, last = [*block, token.string.lstrip("# ")], token.start
    yield last[0], " ".join(block)


def findings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and reason of each finding in a file."""
    texts = [*comments(path)]
    for line, comment in texts:
        # Every sentence of a comment must hold one of the verbs above.
        for sentence in re.split(r"(?<=\.) (?=[A-Z])", comment) if comment.endswith(".") else ():
            if not VERB.search(sentence) or (CLAUSE.match(sentence) and "," not in sentence):
                yield line, f"no sentence: {sentence}"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (
            text := ast.get_docstring(node)
        ):
            texts.append((node.body[0].lineno, text))
            first = text.splitlines()[0]
            if (
                CLAUSE.match(first)
                or len(re.sub("`[^`]+`", "code", first).split()) > 12
                or first[-1] not in ".:?"
            ):
                yield node.body[0].lineno, f"first line: {first}"
    yield from ((line, f"odd words: {odd}") for line, text in texts for odd in ODD.findall(text))


if __name__ == "__main__":
    files = sorted(
        path for folder in sys.argv[1:] or FOLDERS for path in Path(folder).rglob("*.py")
    )
    found = [f"{path}:{line}: {reason}" for path in files for line, reason in findings(path)]
    sys.exit("\n".join(found) or None)
