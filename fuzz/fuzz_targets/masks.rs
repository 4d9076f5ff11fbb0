#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| clash_fuzz::masks(data));
