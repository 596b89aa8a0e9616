//! See `rnic_wire::fuzz::irn`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    rnic_wire::fuzz::irn(data);
});
