//! A naive reader of canonical text, which shares no code with the real one.

use std::iter::Peekable;
use std::str::Chars;

use super::model::{Number, Value};

/// Reads canonical text; anything that is not canonical in shape is an error.
///
/// Numbers are only read for their value, so this does not check their layout.
pub(super) fn read(text: &str) -> Result<Value, String> {
    let mut rest = text.chars().peekable();
    let value = read_value(&mut rest)?;
    match rest.next() {
        None => Ok(value),
        Some(_) => Err(format!("more after the value: {text:?}")),
    }
}

fn read_value(rest: &mut Peekable<Chars<'_>>) -> Result<Value, String> {
    match rest.peek() {
        Some('n') => read_word(rest, "null").map(|()| Value::Null),
        Some('t') => read_word(rest, "true").map(|()| Value::Bool(true)),
        Some('f') => read_word(rest, "false").map(|()| Value::Bool(false)),
        Some('"') => read_string(rest).map(Value::String),
        Some('-' | '0'..='9') => read_number(rest).map(Value::Number),
        Some('[') => {
            let mut items = Vec::new();
            read_list(rest, '[', ']', |rest| {
                items.push(read_value(rest)?);
                Ok(())
            })?;
            Ok(Value::Array(items))
        }
        Some('{') => {
            let mut members: Vec<(String, Value)> = Vec::new();
            read_list(rest, '{', '}', |rest| {
                let name = read_string(rest)?;
                read_word(rest, ":")?;
                members.push((name, read_value(rest)?));
                Ok(())
            })?;
            if !members.is_sorted_by(|(a, _), (b, _)| a.encode_utf16().lt(b.encode_utf16())) {
                return Err("members not in order".to_owned());
            }
            Ok(Value::Object(members.into_iter().collect()))
        }
        other => Err(format!("no value: {other:?}")),
    }
}

fn read_word(rest: &mut Peekable<Chars<'_>>, word: &str) -> Result<(), String> {
    for expected in word.chars() {
        if rest.next() != Some(expected) {
            return Err(format!("no {word:?}"));
        }
    }
    Ok(())
}

fn read_list<'a>(
    rest: &mut Peekable<Chars<'a>>,
    open: char,
    close: char,
    mut item: impl FnMut(&mut Peekable<Chars<'a>>) -> Result<(), String>,
) -> Result<(), String> {
    read_word(rest, &open.to_string())?;
    if rest.next_if_eq(&close).is_some() {
        return Ok(());
    }
    loop {
        item(rest)?;
        if rest.next_if_eq(&close).is_some() {
            return Ok(());
        }
        read_word(rest, ",")?;
    }
}

fn read_string(rest: &mut Peekable<Chars<'_>>) -> Result<String, String> {
    read_word(rest, "\"")?;
    let mut text = String::new();
    loop {
        match rest.next() {
            Some('"') => return Ok(text),
            Some('\\') => text.push(match rest.next() {
                Some(same @ ('"' | '\\')) => same,
                Some('b') => '\u{8}',
                Some('t') => '\t',
                Some('n') => '\n',
                Some('f') => '\u{c}',
                Some('r') => '\r',
                Some('u') => {
                    let digits: String = rest.take(4).collect();
                    match u8::from_str_radix(&digits, 16) {
                        Ok(8 | 9 | 10 | 12 | 13) => return Err("long escape".to_owned()),
                        Ok(code @ 0..0x20) if digits == format!("{code:04x}") => char::from(code),
                        _ => return Err(format!("needless escape {digits}")),
                    }
                }
                other => return Err(format!("escape {other:?}")),
            }),
            Some('\0'..='\u{1f}') | None => return Err("string not closed".to_owned()),
            Some(other) => text.push(other),
        }
    }
}

fn read_number(rest: &mut Peekable<Chars<'_>>) -> Result<Number, String> {
    let mut text = String::new();
    while let Some(character) = rest.next_if(|c| matches!(c, '0'..='9' | '-' | '+' | '.' | 'e')) {
        text.push(character);
    }
    let (negative, magnitude) = match text.strip_prefix('-') {
        Some(magnitude) => (true, magnitude),
        None => (false, text.as_str()),
    };
    let (mantissa, exponent) = magnitude.split_once('e').unwrap_or((magnitude, "+0"));
    let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all_digits = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    let well_formed = all_digits(integer)
        && all_digits(fraction)
        && (integer == "0" || !integer.starts_with('0'))
        && mantissa.contains('.') != fraction.is_empty()
        && !integer.is_empty()
        && exponent.starts_with(['+', '-'])
        && text != "-0";
    let exponent: Option<i64> = exponent.parse().ok();
    match exponent {
        Some(exponent) if well_formed => Ok(Number::new(
            negative,
            &format!("{integer}{fraction}"),
            exponent - fraction.len() as i64,
        )),
        _ => Err(format!("number {text:?}")),
    }
}
