//! Bytes as letters and digits, five bits each: one spelling for each value, and a double click
//! selects it whole.

/// Without `i`, `l`, `o` and `u`, which are mistaken for others or make words.
const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Returns the letter of the lowest five bits.
pub(super) const fn letter(bits: u64) -> u8 {
    LETTERS[(bits & 31) as usize]
}

/// How many letters so many bytes take.
pub(super) const fn length(bytes: usize) -> usize {
    (bytes * 8).div_ceil(5)
}

/// Writes bytes, the highest bits first; what is missing to the last letter is zero.
pub(super) fn write(text: &mut String, bytes: &[u8]) {
    let (mut held, mut bits) = (0u64, 0u32);
    for byte in bytes {
        held = (held & 31) << 8 | u64::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(letter(held >> bits)));
        }
    }
    if bits > 0 {
        text.push(char::from(letter(held << (5 - bits))));
    }
}

/// Reads what [`write`] writes, and nothing else.
pub(super) fn read<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != length(N) {
        return None;
    }
    let mut bytes = [0; N];
    let mut places = bytes.iter_mut();
    let (mut held, mut bits) = (0u64, 0u32);
    for byte in text.bytes() {
        let value = LETTERS.iter().position(|letter| *letter == byte)?;
        held = (held & 0xff) << 5 | value as u64;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            *places.next()? = (held >> bits & 0xff) as u8;
        }
    }
    // Another filling would be a second spelling of the same bytes.
    let filling = held & ((1 << bits) - 1);
    (filling == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_one_spelling() {
        for (bytes, text) in [
            ([0, 0, 0, 0], "0000000"),
            // The last letter has two bits of the bytes, then three zeros.
            ([0xff, 0xff, 0xff, 0xff], "zzzzzzr"),
            ([0x80, 0, 0, 1], "g000008"),
        ] {
            let mut written = String::new();
            write(&mut written, &bytes);
            assert_eq!(written, text);
            assert_eq!(read::<4>(&written), Some(bytes));
        }
        for wrong in ["", "000000", "00000000", "0000001", "000000O", "00000é"] {
            assert_eq!(read::<4>(wrong), None, "{wrong}");
        }
    }
}
