#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| turnwheel_fuzz::payload(data));
