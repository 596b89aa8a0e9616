//! See `rnic_wire::fuzz::cm_ready_to_use`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    rnic_wire::fuzz::cm_ready_to_use(data);
});
