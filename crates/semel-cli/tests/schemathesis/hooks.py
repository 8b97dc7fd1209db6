"""What schemathesis cannot say itself."""

from urllib.parse import unquote

import schemathesis


@schemathesis.hook
def filter_path_parameters(context, path_parameters):
    """Leaves out keys such as `a%80`: the tool undoes what looks escaped in a path before it escapes it, so that
    another key would be sent than the one that it takes for valid."""
    return all(unquote(value) == value for value in (path_parameters or {}).values() if isinstance(value, str))


@schemathesis.hook
def filter_case(context, case):
    """Leaves out tasks that a schema allows and the words beside it do not: with two keys or none, or whose longest wait is
    below the first."""
    if not case.path.endswith("/tasks") or not isinstance(case.body, dict):
        return True
    if isinstance(case.body.get("key"), str) == ("Idempotency-Key" in (case.headers or {})):
        return False
    backoff = case.body.get("backoff")
    waits = [backoff.get(name) for name in ("base_ms", "cap_ms")] if isinstance(backoff, dict) else [0, 0]
    return not all(isinstance(wait, (int, float)) for wait in waits) or waits[0] <= waits[1]
