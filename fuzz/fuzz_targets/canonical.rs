//! Canonical JSON: no input panics, and what is accepted is its own canonical form.

#![no_main]

use libfuzzer_sys::fuzz_target;
use semel_core::canonical::{Limits, canonicalize};

fuzz_target!(|input: &[u8]| {
    // The output may be longer than the limit on the input.
    let unlimited = Limits {
        size: usize::MAX,
        depth: usize::MAX,
    };
    match canonicalize(input, &Limits::default()) {
        Ok(output) => {
            let again = canonicalize(&output, &unlimited);
            assert_eq!(again.as_deref(), Ok(output.as_slice()));

            // Within another value the same text means the same.
            let mut nested = b" [ ".to_vec();
            nested.extend_from_slice(input);
            nested.extend_from_slice(b"\n]");
            let expected = [b"[", output.as_slice(), b"]"].concat();
            assert_eq!(canonicalize(&nested, &unlimited), Ok(expected));
        }
        Err(error) => assert!(error.offset() <= input.len(), "{error}"),
    }
});
