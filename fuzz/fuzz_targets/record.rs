//! Stored bytes: no input panics, and what is accepted has no second spelling.

#![no_main]

use libfuzzer_sys::fuzz_target;
use semel_core::ledger::codec::{
    decode_command, decode_entry, decode_record, encode_command, encode_entry, encode_record,
};

/// Says whether these bytes are the only spelling of what they say. The first format has a second one where it holds the
/// text of a probe, which is written again as its digest in the second.
fn is_canonical(input: &[u8], written: &[u8]) -> bool {
    written == input || (input[0] == 1 && written[0] == 2)
}

fuzz_target!(|input: &[u8]| {
    if let Ok(record) = decode_record(input) {
        let written = encode_record(&record);
        assert!(is_canonical(input, &written));
        assert_eq!(decode_record(&written), Ok(record));
    }
    if let Ok(command) = decode_command(input) {
        assert_eq!(encode_command(&command), input);
    }
    if let Ok(entry) = decode_entry(input) {
        let written = encode_entry(&entry);
        assert!(is_canonical(input, &written));
        assert_eq!(decode_entry(&written), Ok(entry));
    }
});
