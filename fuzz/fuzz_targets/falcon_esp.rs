//! See `rnic_wire::fuzz::falcon_esp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    rnic_wire::fuzz::falcon_esp(data);
});
