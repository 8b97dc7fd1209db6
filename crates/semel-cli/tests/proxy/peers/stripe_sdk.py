"""Stripe's SDK for Python. Usage: stripe_sdk.py URL CALLS PLAIN|STREAM SECONDS; prints what it was told."""

import json
import sys

import stripe

url, calls, _, seconds = sys.argv[1:]
client = stripe.StripeClient(
    "sk_test_1",
    base_addresses={"api": url},
    max_network_retries=2,
    http_client=stripe.RequestsClient(timeout=float(seconds)),
)
told = []
for _ in range(int(calls)):
    try:
        told.append(client.v1.payment_intents.create({"amount": 500, "currency": "eur"}).id)
    except stripe.StripeError as error:
        told.append(f"error {error.http_status}")
print(json.dumps(told))
