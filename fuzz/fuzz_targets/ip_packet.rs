//! See `rnic_wire::fuzz::ip_packet`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    rnic_wire::fuzz::ip_packet(data);
});
