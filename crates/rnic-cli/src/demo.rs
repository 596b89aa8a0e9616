//! `rnic demo`: the main job on real input, in under a minute.

mod contest;
mod find;
mod page;
mod summary;
