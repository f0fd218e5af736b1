"""Says what PyYAML, a reader of YAML 1.1, makes of a text.

In: one JSON object per line on stdin. Out: one line of JSON per question, in order. It ends when stdin does.
"""

import json
import sys

import yaml

# The reader in Python differs from the one in C where text becomes tokens. It is slow: texts up to this many characters.
PURE_LIMIT = 1500


def texts_as(style):
    """A dumper that writes texts in one style. With dump's own default_style numbers would get it, too, and a tag."""

    class Dumper(yaml.CSafeDumper):
        pass

    def represent(dumper, text):
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent)
    return Dumper


WRITERS = {
    "PyYAML": {"Dumper": yaml.CSafeDumper},
    "PyYAML unicode": {"Dumper": yaml.CSafeDumper, "allow_unicode": True, "width": 10**6},
    "PyYAML flow": {"Dumper": yaml.CSafeDumper, "default_flow_style": True},
    "PyYAML literal": {"Dumper": texts_as("|"), "allow_unicode": True},
    "PyYAML folded": {"Dumper": texts_as(">"), "width": 20},
    "PyYAML single": {"Dumper": texts_as("'"), "width": 20},
    "PyYAML double": {"Dumper": texts_as('"'), "width": 20},
}


def check(value):
    """Refuses what JSON lacks, which json.dumps would change in silence: keys that are numbers, for instance."""
    kind = type(value)
    if kind is list:
        for item in value:
            check(item)
    elif kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise ValueError(f"a key that is a {type(key).__name__}")
            check(item)
    elif kind not in (str, bool, int, float, type(None)):
        raise ValueError(f"a {kind.__name__}, which JSON lacks")


def read(name, text, loader):
    """One reader's answer. Floats keep a dot or an exponent, integers have none."""
    try:
        value = yaml.load(text, loader)
        check(value)
        return {"name": name, "value": json.dumps(value, allow_nan=False)}
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        return {"name": name, "error": f"{type(error).__name__}: {error}"}


def read_all(question):
    text = question["text"]
    answers = [read("libyaml", text, yaml.CSafeLoader)]
    if len(text) <= PURE_LIMIT:
        answers.append(read("PyYAML", text, yaml.SafeLoader))
    return answers


def write_all(question):
    value = json.loads(question["json"])
    answers = []
    for name, how in WRITERS.items():
        text = yaml.dump(value, **how)
        answers.append({**read(name, text, yaml.CSafeLoader), "text": text})
    return answers


def same(left, right):
    """Equality as Python has it: numbers by exact value whatever their type, except that True is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(item, right[key]) for key, item in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def equal(question):
    return same(json.loads(question["left"]), json.loads(question["right"]))


def main():
    sys.setrecursionlimit(20_000)
    operations = {"read": read_all, "write": write_all, "equal": equal}
    for line in sys.stdin.buffer:
        question = json.loads(line)
        print(json.dumps(operations[question["op"]](question)), flush=True)


main()
