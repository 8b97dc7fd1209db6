//! Checksums: SQLite keeps none of its pages, and a record that was changed on the disk must be an
//! error, never another record.
//!
//! Four bytes at the end of what is stored. They are no protection from somebody who means it; they
//! find a flipped bit, a torn page and a write that went astray.

use crc32fast::Hasher;

/// The bytes that a seal takes.
pub(super) const SEAL: usize = 4;

/// Adds a checksum of the bytes and of what stands beside them.
pub(super) fn seal(bytes: &mut Vec<u8>, beside: &[&[u8]]) {
    let sum = checksum(bytes, beside);
    bytes.extend_from_slice(&sum.to_le_bytes());
}

/// Returns the bytes without their checksum; `None` when they are not what was sealed.
pub(super) fn unseal<'a>(sealed: &'a [u8], beside: &[&[u8]]) -> Option<&'a [u8]> {
    let (bytes, sum) = sealed.split_last_chunk::<SEAL>()?;
    (checksum(bytes, beside).to_le_bytes() == *sum).then_some(bytes)
}

/// Returns the checksum of bytes and of what stands beside them.
pub(super) fn checksum(bytes: &[u8], beside: &[&[u8]]) -> u32 {
    let mut hasher = Hasher::new();
    beside.iter().for_each(|part| hasher.update(part));
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_comes_back_and_no_flipped_bit_does() {
        let beside: [&[u8]; 2] = [&[1, 2], &[3]];
        for length in [0, 1, 200] {
            let bytes: Vec<u8> = (0..length).collect();
            let mut sealed = bytes.clone();
            seal(&mut sealed, &beside);
            assert_eq!(unseal(&sealed, &beside), Some(bytes.as_slice()));
            assert_eq!(unseal(&sealed, &[&[1, 2], &[4]]), None, "beside it");
            for bit in 0..sealed.len() * 8 {
                sealed[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(unseal(&sealed, &beside), None, "bit {bit} of {length}");
                sealed[bit / 8] ^= 1 << (bit % 8);
            }
            assert_eq!(unseal(&sealed[..sealed.len() - 1], &beside), None);
        }
        assert_eq!(unseal(&[0; SEAL - 1], &[]), None);
    }
}
