"""Times of an answer divided by fifty."""


def changed(value, key=""):
    if isinstance(value, dict):
        return {name: changed(part, name) for name, part in value.items()}
    if isinstance(value, list):
        return [changed(part, key) for part in value]
    if isinstance(value, float | int) and key.endswith(("_ms", "_us", "_ns", "_s")):
        return value / 50
    return value
