//! A plain model of JSON values: what they are equal to, and how else they can be spelled.

use std::collections::BTreeMap;

use proptest::prelude::*;

/// A JSON value; `==` is what canonical bytes must agree with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    Array(Vec<Self>),
    Object(BTreeMap<String, Self>),
}

/// An exact number: ±DIGITS × 10^exponent, the digits without zeros at either end.
///
/// Zero has no digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Number {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Number {
    pub(super) fn new(negative: bool, digits: &str, exponent: i64) -> Self {
        let stripped = digits.trim_end_matches('0');
        let exponent = exponent + (digits.len() - stripped.len()) as i64;
        let digits = stripped.trim_start_matches('0').to_owned();
        if digits.is_empty() {
            return Self {
                negative: false,
                digits,
                exponent: 0,
            };
        }
        Self {
            negative,
            digits,
            exponent,
        }
    }

    /// Tells whether the value may be rounded to a double, so that others share its bytes.
    fn may_be_rounded(&self) -> bool {
        self.exponent < 0 && matches!(self.digits.len(), 16 | 17)
    }

    /// Spells the number in one of many ways.
    fn spell(&self, noise: &mut Noise) -> String {
        let sign = if self.negative { "-" } else { "" };
        if self.digits.is_empty() {
            return noise
                .pick(&["0", "-0", "0.0", "0e7", "-0.00E-3"])
                .to_owned();
        }
        let zeros = noise.below(4);
        let digits = format!("{}{}", self.digits, "0".repeat(zeros));
        let exponent = self.exponent - zeros as i64;
        // How many digits stand after the point; beyond their count, zeros go in front.
        let after = noise.below(digits.len() + 3);
        let padded = format!("{digits:0>width$}", width = after + 1);
        let (integer, fraction) = padded.split_at(padded.len() - after);
        let point = if fraction.is_empty() { "" } else { "." };
        let exponent = match exponent + after as i64 {
            0 if noise.below(2) == 0 => String::new(),
            exponent => {
                let letter = noise.pick(&["e", "E"]);
                let sign = if exponent < 0 {
                    "-"
                } else {
                    noise.pick(&["", "+"])
                };
                let zeros = noise.pick(&["", "0", "000"]);
                format!("{letter}{sign}{zeros}{}", exponent.unsigned_abs())
            }
        };
        format!("{sign}{integer}{point}{fraction}{exponent}")
    }
}

/// A stream of choices, taken from bytes that proptest can shrink.
pub(super) struct Noise {
    bytes: Vec<u8>,
    next: usize,
}

impl Noise {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, next: 0 }
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        let byte = self.bytes.get(self.next % self.bytes.len().max(1));
        self.next += 1;
        usize::from(byte.copied().unwrap_or(0)) % limit
    }

    fn pick(&mut self, choices: &[&'static str]) -> &'static str {
        choices[self.below(choices.len())]
    }

    fn blank(&mut self) -> &'static str {
        self.pick(&["", "", " ", "\n", "\t", "\r\n", "   "])
    }
}

impl Value {
    /// Spells the value in one of many ways: whitespace, escapes, order of members, numbers.
    pub(super) fn spell(&self, noise: &mut Noise) -> String {
        let (before, after) = (noise.blank(), noise.blank());
        let text = match self {
            Self::Null => "null".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Number(number) => number.spell(noise),
            Self::String(text) => spell_string(text, noise),
            Self::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| item.spell(noise)).collect();
                format!("[{}{}]", noise.blank(), items.join(","))
            }
            Self::Object(members) => {
                let mut spelled = Vec::new();
                for (name, value) in members {
                    let name = spell_string(name, noise);
                    let (before, after) = (noise.blank(), noise.blank());
                    let text = format!("{before}{name}{after}:{}", value.spell(noise));
                    spelled.insert(noise.below(spelled.len() + 1), text);
                }
                format!("{{{}{}}}", noise.blank(), spelled.join(","))
            }
        };
        format!("{before}{text}{after}")
    }

    /// Changes one thing, or nothing, somewhere in the value.
    pub(super) fn tweak(&mut self, noise: &mut Noise) {
        match self {
            Self::Array(items) if !items.is_empty() && noise.below(4) > 0 => {
                let index = noise.below(items.len());
                items[index].tweak(noise);
            }
            Self::Object(members) if !members.is_empty() && noise.below(4) > 0 => {
                let index = noise.below(members.len());
                if let Some(member) = members.values_mut().nth(index) {
                    member.tweak(noise);
                }
            }
            Self::Array(items) => items.push(Self::Array(Vec::new())),
            Self::Object(members) => {
                members.insert(
                    noise.pick(&["", "a", "b", "\u{e000}"]).to_owned(),
                    Self::Null,
                );
            }
            Self::String(text) => text.push_str(noise.pick(&["", "\0", "\"", "\\", "a"])),
            Self::Number(number) => match noise.below(3) {
                0 => *number = Number::new(!number.negative, &number.digits, number.exponent),
                1 => *number = Number::new(number.negative, &number.digits, number.exponent + 1),
                _ => {
                    let longer = Number::new(
                        number.negative,
                        &format!("{}1", number.digits),
                        number.exponent,
                    );
                    if !longer.may_be_rounded() {
                        *number = longer;
                    }
                }
            },
            Self::Null => *self = Self::Bool(noise.below(2) == 0),
            Self::Bool(value) => *value = noise.below(2) == 0,
        }
    }
}

fn spell_string(text: &str, noise: &mut Noise) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        let must_escape = matches!(character, '"' | '\\' | '\0'..='\u{1f}');
        match (character, noise.below(3)) {
            ('\n', 0) => out.push_str("\\n"),
            ('/', 0) => out.push_str("\\/"),
            ('"' | '\\', 0) => out.extend(['\\', character]),
            (_, 1 | 2) if !must_escape => out.push(character),
            (_, style) => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    match style {
                        1 => out.push_str(&format!("\\u{unit:04X}")),
                        _ => out.push_str(&format!("\\u{unit:04x}")),
                    }
                }
            }
        }
    }
    out.push('"');
    out
}

/// Makes characters of every kind that ordering and escaping treat apart.
fn character() -> impl Strategy<Value = char> {
    prop_oneof![
        prop::sample::select(vec![
            '\0',
            '\u{8}',
            '\n',
            '\u{1f}',
            '"',
            '\\',
            '/',
            'a',
            'b',
            '\u{7f}',
            '\u{80}',
            '\u{7ff}',
            '\u{d7ff}',
            '\u{e000}',
            '\u{ffff}',
            '\u{10000}',
            '\u{10ffff}',
            '\u{1f602}',
        ]),
        any::<char>(),
    ]
}

pub(super) fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(character(), 0..5).prop_map(String::from_iter)
}

/// Makes numbers whose exact value the canonical text keeps.
pub(super) fn number() -> impl Strategy<Value = Number> {
    let digit = prop_oneof![Just(0_u8), 0..10_u8, Just(9)];
    let digits = prop::collection::vec(digit, 0..40)
        .prop_map(|digits| digits.iter().map(u8::to_string).collect::<String>());
    let exponent = prop_oneof![-8..8_i64, -30..30_i64, -300..300_i64];
    (any::<bool>(), digits, exponent)
        .prop_map(|(negative, digits, exponent)| Number::new(negative, &digits, exponent))
        .prop_filter("rounded to a double", |number| {
            // Short numbers this small are subnormal doubles, so rounded as well.
            !number.may_be_rounded() && number.exponent > -290
        })
}

pub(super) fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        number().prop_map(Value::Number),
        text().prop_map(Value::String),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::btree_map(text(), inner, 0..6).prop_map(Value::Object),
        ]
    })
}
