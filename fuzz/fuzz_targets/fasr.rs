//! See `rnic_wire::fuzz::fasr`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    rnic_wire::fuzz::fasr(data);
});
