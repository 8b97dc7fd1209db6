//! Checks arguments against a tool's input schema, as far as a violation is certain.
//!
//! This is not a validator. Its answer is used to decide whether an error -32602 proves that nothing ran, so it says
//! "violates" only for the keywords below, whose meaning is the same in every draft of JSON Schema. Everything else
//! (`$ref`, `anyOf`, formats, patterns) never counts against a call.

use serde_json::{Map, Value};

/// How deep a schema is followed; what lies deeper never counts.
const DEPTH_MAX: usize = 32;

/// Says whether a value certainly violates a schema.
pub(super) fn violates(schema: &Value, value: &Value) -> bool {
    violates_at(schema, value, DEPTH_MAX)
}

fn violates_at(schema: &Value, value: &Value, depth: usize) -> bool {
    let Some(schema) = schema.as_object() else {
        return *schema == Value::Bool(false);
    };
    // Older drafts ignore whatever stands beside a reference.
    if depth == 0 || schema.contains_key("$ref") {
        return false;
    }
    has_wrong_type(schema, value)
        || is_not_listed(schema, value)
        || match value {
            Value::Object(members) => has_wrong_members(schema, members, depth),
            Value::Array(items) => has_wrong_items(schema, items, depth),
            Value::String(text) => is_out_of_length(schema, text.chars().count(), "Length"),
            Value::Number(_) => is_out_of_range(schema, value),
            Value::Null | Value::Bool(_) => false,
        }
}

fn has_wrong_type(schema: &Map<String, Value>, value: &Value) -> bool {
    match schema.get("type") {
        Some(Value::String(kind)) => !is_of_type(kind, value),
        Some(Value::Array(kinds)) => !kinds
            .iter()
            .any(|kind| kind.as_str().is_none_or(|kind| is_of_type(kind, value))),
        Some(_) | None => false,
    }
}

fn is_of_type(kind: &str, value: &Value) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => {
            value.is_i64()
                || value.is_u64()
                || value.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        // A word of no draft says nothing.
        _ => true,
    }
}

fn is_not_listed(schema: &Map<String, Value>, value: &Value) -> bool {
    let other = |listed: &Value| !is_same(listed, value);
    schema.get("const").is_some_and(other)
        || schema
            .get("enum")
            .and_then(Value::as_array)
            .is_some_and(|listed| listed.iter().all(other))
}

/// Compares by value: 1 and 1.0 are one number in JSON Schema.
fn is_same(left: &Value, right: &Value) -> bool {
    match (left.as_f64(), right.as_f64()) {
        (Some(left), Some(right)) => left == right,
        _ => left == right,
    }
}

fn has_wrong_members(
    schema: &Map<String, Value>,
    members: &Map<String, Value>,
    depth: usize,
) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    let is_missing = |name: &Value| {
        name.as_str()
            .is_some_and(|name| !members.contains_key(name))
    };
    if required.is_some_and(|names| names.iter().any(is_missing)) {
        return true;
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    let property = |name: &String| properties.and_then(|known| known.get(name));
    let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false))
        && !schema.contains_key("patternProperties");
    members.iter().any(|(name, value)| match property(name) {
        Some(schema) => violates_at(schema, value, depth - 1),
        None => is_closed,
    })
}

fn has_wrong_items(schema: &Map<String, Value>, items: &[Value], depth: usize) -> bool {
    if is_out_of_length(schema, items.len(), "Items") {
        return true;
    }
    // Beside `prefixItems`, and as an array, `items` is about some of them only.
    let each = schema.get("items").filter(|each| each.is_object());
    let each = each.filter(|_| !schema.contains_key("prefixItems"));
    each.is_some_and(|each| items.iter().any(|item| violates_at(each, item, depth - 1)))
}

/// Compares a count with `min…` and `max…`.
fn is_out_of_length(schema: &Map<String, Value>, count: usize, what: &str) -> bool {
    let bound = |end: &str| schema.get(&format!("{end}{what}")).and_then(Value::as_u64);
    let count = count as u64;
    bound("min").is_some_and(|least| count < least) || bound("max").is_some_and(|most| count > most)
}

/// Compares a number with its bounds. Draft 4 has Boolean `exclusive…`, which say nothing here.
fn is_out_of_range(schema: &Map<String, Value>, value: &Value) -> bool {
    let Some(number) = value.as_f64() else {
        return false;
    };
    let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
    bound("minimum").is_some_and(|least| number < least)
        || bound("maximum").is_some_and(|most| number > most)
        || bound("exclusiveMinimum").is_some_and(|least| number <= least)
        || bound("exclusiveMaximum").is_some_and(|most| number >= most)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn certain_violations_are_found_and_nothing_else() {
        let order = json!({
            "type": "object",
            "properties": {
                "n": {"type": "integer", "minimum": 1, "exclusiveMaximum": 10},
                "to": {"type": ["string", "null"], "minLength": 2},
                "kind": {"enum": ["a", 1]},
                "tags": {"type": "array", "maxItems": 2, "items": {"type": "string"}},
                "address": {"type": "object", "required": ["zip"]},
                "any": {"anyOf": [{"type": "string"}], "format": "date"},
                "other": {"$ref": "#/$defs/x", "type": "string"},
                "old": {"type": "number", "minimum": 1, "exclusiveMinimum": true},
            },
            "required": ["n"],
            "additionalProperties": false,
        });
        for (arguments, expected) in [
            (json!({"n": 1}), false),
            (json!({"n": 1.0}), false),
            (json!({}), true),
            (json!({"n": "one"}), true),
            (json!({"n": "1"}), true),
            (json!({"n": 1.5}), true),
            (json!({"n": 0}), true),
            (json!({"n": 10}), true),
            (json!({"n": null}), true),
            (json!({"n": 1, "more": 1}), true),
            (json!({"n": 1, "to": null}), false),
            (json!({"n": 1, "to": "éé"}), false),
            (json!({"n": 1, "to": "é"}), true),
            (json!({"n": 1, "to": 7}), true),
            (json!({"n": 1, "kind": 1.0}), false),
            (json!({"n": 1, "kind": "b"}), true),
            (json!({"n": 1, "tags": ["a", "b"]}), false),
            (json!({"n": 1, "tags": ["a", 2]}), true),
            (json!({"n": 1, "tags": ["a", "b", "c"]}), true),
            (json!({"n": 1, "address": {}}), true),
            (json!({"n": 1, "any": 7, "other": 7}), false),
            (json!({"n": 1, "old": 1}), false),
            (json!([]), true),
        ] {
            assert_eq!(violates(&order, &arguments), expected, "{arguments}");
        }
    }

    #[test]
    fn schemas_that_say_nothing_refute_nothing() {
        for schema in [
            json!(true),
            json!(null),
            json!({"type": "sparkles", "required": 7, "properties": [], "enum": "a"}),
            json!({"patternProperties": {"^x": {}}, "additionalProperties": false}),
        ] {
            assert!(!violates(&schema, &json!({"x": 1})), "{schema}");
        }
        assert!(violates(&json!(false), &json!({})));
    }

    #[test]
    fn a_schema_is_followed_to_a_limited_depth() {
        let mut schema = json!({"type": "string"});
        let mut value = json!(7);
        for _ in 0..DEPTH_MAX {
            assert!(violates(&schema, &value));
            schema = json!({"properties": {"a": schema}});
            value = json!({"a": value});
        }
        assert!(!violates(&schema, &value));
    }
}
