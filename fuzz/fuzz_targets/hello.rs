//! See `rnic_wire::fuzz::hello`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    rnic_wire::fuzz::hello(data);
});
