//! See `rnic_wire::fuzz::cm_lookup_request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    rnic_wire::fuzz::cm_lookup_request(data);
});
