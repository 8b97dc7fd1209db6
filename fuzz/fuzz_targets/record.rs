//! Stored bytes: no input panics, and what is accepted has no second spelling.

#![no_main]

use libfuzzer_sys::fuzz_target;
use semel_core::ledger::codec::{
    decode_command, decode_entry, decode_record, encode_command, encode_entry, encode_record,
};

fuzz_target!(|input: &[u8]| {
    if let Ok(record) = decode_record(input) {
        assert_eq!(encode_record(&record), input);
    }
    if let Ok(command) = decode_command(input) {
        assert_eq!(encode_command(&command), input);
    }
    if let Ok(entry) = decode_entry(input) {
        assert_eq!(encode_entry(&entry), input);
    }
});
