"""Checks each dependency's licence against the list in deny.toml, where cargo-deny is not there."""
import json
import re
import subprocess
import sys
import tomllib

rules = tomllib.load(open("deny.toml", "rb"))["licenses"]
allowed = set(rules["allow"])
clarified = {rule["crate"]: rule["expression"] for rule in rules.get("clarify", [])}
metadata = json.loads(
    subprocess.check_output(["cargo", "metadata", "--format-version", "1", "--locked"])
)


def fine(expression):
    """Whether one of the alternatives is allowed in all its parts."""
    expression = expression.replace("/", " OR ")
    tokens = re.findall(r"\(|\)|[^\s()]+", expression)
    words = [
        t if t in ("(", ")") else {"OR": "or", "AND": "and", "WITH": "WITH"}.get(t, t) for t in tokens
    ]
    text, index = [], 0
    while index < len(words):
        word = words[index]
        if index + 2 < len(words) and words[index + 1] == "WITH":
            word = f"{word} WITH {words[index + 2]}"
            index += 2
        text.append(word if word in ("(", ")", "or", "and") else str(word in allowed))
        index += 1
    return eval(" ".join(text))


bad = []
for package in metadata["packages"]:
    licence = clarified.get(package["name"], package["license"])
    if package["source"] and not (licence and fine(licence)):
        bad.append(f"{package['name']} {package['version']}: {licence or 'no licence stated'}")
print("\n".join(bad) or f"{len(metadata['packages'])} packages, all licences allowed")
sys.exit(bool(bad))
