//! Every rule on small invented trees: what it finds, and what it lets pass.

#[path = "rules/arrows.rs"]
mod arrows;
#[path = "rules/card.rs"]
mod card;
#[path = "rules/cards.rs"]
mod cards;
#[path = "rules/circles.rs"]
mod circles;
#[path = "rules/crates.rs"]
mod crates;
#[path = "rules/dead_files.rs"]
mod dead_files;
#[path = "rules/docs.rs"]
mod docs;
#[path = "rules/floats.rs"]
mod floats;
#[path = "rules/generated.rs"]
mod generated;
#[path = "rules/heads.rs"]
mod heads;
#[path = "rules/language.rs"]
mod language;
#[path = "rules/layout.rs"]
mod layout;
#[path = "rules/lints.rs"]
mod lints;
#[path = "rules/markdown.rs"]
mod markdown;
#[path = "rules/mechanisms.rs"]
mod mechanisms;
#[path = "rules/methods.rs"]
mod methods;
#[path = "rules/names.rs"]
mod names;
#[path = "rules/patterns.rs"]
mod patterns;
#[path = "rules/programs.rs"]
mod programs;
#[path = "rules/size.rs"]
mod size;
#[path = "rules/tree.rs"]
mod tree;
