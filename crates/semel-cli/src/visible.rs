//! Texts for a terminal: what a reader would not see, or what would show the rest in another order, is escaped.

use std::borrow::Cow;

/// Says whether a character is shown as nothing, or changes how others are shown: controls, and the format characters
/// of Unicode (category Cf) with the separators of lines and paragraphs.
const fn is_hidden(c: char) -> bool {
    matches!(c,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        | '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}'
        | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0001}' | '\u{e0020}'..='\u{e007f}')
}

/// Escapes what is hidden in a value: a name, a key, the words of another program.
pub(crate) fn value(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_hidden(c) && !matches!(c, '\n' | '\t'))
}

/// Escapes what is hidden in whole lines, which may have our own colours.
pub(crate) fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| {
        is_hidden(c) && !matches!(c, '\n' | '\t' | '\u{1b}')
    })
}

fn escaped(text: &str, is_meant: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_meant) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match is_meant(c) {
            true => shown.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Escapes what is hidden in a JSON text, as JSON does: its value stays the same.
pub(crate) fn json(text: &str) -> Cow<'_, str> {
    // Between values these are white space; in a string they are escaped already.
    let is_meant = |c: char| is_hidden(c) && !matches!(c, '\n' | '\r' | '\t');
    if !text.contains(is_meant) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_meant(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                shown.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bidi_control_and_tag_is_escaped_and_ordinary_text_is_not() {
        let bidi = ['\u{61c}', '\u{200e}', '\u{200f}'].into_iter();
        let bidi = bidi
            .chain('\u{202a}'..='\u{202e}')
            .chain('\u{2066}'..='\u{2069}');
        for c in bidi.chain([
            '\u{200b}',
            '\u{feff}',
            '\u{e0041}',
            '\u{1b}',
            '\u{9b}',
            '\u{7}',
        ]) {
            let shown = value(&format!("a{c}b")).into_owned();
            assert_eq!(shown, format!("a\\u{{{:x}}}b", u32::from(c)));
        }
        for text in ["order-7", "été", "日本語", "שלום", "🙂", "two\nlines\there"] {
            assert!(matches!(value(text), Cow::Borrowed(_)), "{text}");
        }
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        let texts = [
            "plain",
            "a\u{202e}b",
            "\u{e0041}\u{7f}",
            "\u{2028}\\ \"x\"\n",
        ];
        for text in texts {
            let written = format!("[\n\t{}\r]", serde_json::Value::from(text));
            let shown = json(&written);
            assert!(!shown.contains(['\u{202e}', '\u{e0041}', '\u{7f}', '\u{2028}']));
            let read: [String; 1] = serde_json::from_str(&shown).expect("it is JSON");
            assert_eq!(read, [text]);
        }
    }

    #[test]
    fn our_own_colours_stay_in_lines() {
        assert_eq!(
            lines("\u{1b}[31mred\u{1b}[0m \u{202e}"),
            "\u{1b}[31mred\u{1b}[0m \\u{202e}"
        );
    }
}
