"""Anthropic's SDK for Python. Usage: anthropic_sdk.py URL CALLS PLAIN|STREAM SECONDS; prints what it was told."""

import json
import sys

import anthropic

url, calls, how, seconds = sys.argv[1:]
client = anthropic.Anthropic(base_url=url, api_key="sk-1", timeout=float(seconds))


def ask():
    asked = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "hello"}]}
    if how == "plain":
        return client.messages.create(**asked).content[0].text
    with client.messages.stream(**asked) as stream:
        return "".join(stream.text_stream)


told = []
for _ in range(int(calls)):
    try:
        told.append(ask())
    except anthropic.APIStatusError as error:
        told.append(f"error {error.status_code}")
    except Exception as error:  # What a broken stream is called differs by version.
        told.append(f"broken {type(error).__name__}")
print(json.dumps(told))
