"""OpenAI's SDK for Python. Usage: openai_sdk.py URL CALLS PLAIN|STREAM SECONDS; prints what it was told."""

import json
import sys

import openai

url, calls, how, seconds = sys.argv[1:]
client = openai.OpenAI(base_url=f"{url}/v1", api_key="sk-1", timeout=float(seconds))


def ask():
    asked = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    if how == "plain":
        return client.chat.completions.create(**asked).choices[0].message.content
    pieces = client.chat.completions.create(**asked, stream=True)
    return "".join(piece.choices[0].delta.content or "" for piece in pieces)


told = []
for _ in range(int(calls)):
    try:
        told.append(ask())
    except openai.APIStatusError as error:
        told.append(f"error {error.status_code}")
    except Exception as error:  # What a broken stream is called differs by version.
        told.append(f"broken {type(error).__name__}")
print(json.dumps(told))
