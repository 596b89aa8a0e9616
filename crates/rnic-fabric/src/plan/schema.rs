//! The declaration of a plan's keys. `table!` and `words!` produce, from one text, the type that serde reads and the
//! description from which `docs/plans.md` and `rnic list` are generated.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use super::PlanError;

/// A table of a plan.
#[derive(Debug)]
pub struct Table {
    /// Description, in Markdown.
    pub about: Doc,
    /// Keys, in the order of the documentation.
    pub keys: &'static [Key],
}

impl Table {
    /// Returns the table that is the value of `key`.
    pub fn table(&self, key: &str) -> Option<&'static Table> {
        self.keys.iter().find(|known| known.name == key).and_then(|key| key.table)
    }

    /// Returns the values of the key `kind`, each with the keys that are valid for it only; empty for tables without
    /// kinds.
    pub fn kinds(&self) -> impl Iterator<Item = (&'static Word, Vec<&'static str>)> {
        let kinds = self.keys.iter().find(|key| key.name == "kind").map_or(&[][..], |key| key.words);
        kinds.iter().map(|kind| {
            let of_kind = self.keys.iter().filter(|key| key.kinds.contains(&kind.name));
            (kind, of_kind.map(|key| key.name).collect())
        })
    }
}

/// A key of a table.
#[derive(Debug)]
pub struct Key {
    /// Name of the key.
    pub name: &'static str,
    /// Type of the value, as the documentation calls it.
    pub type_name: &'static str,
    /// Meaning and limits, in Markdown.
    pub about: Doc,
    /// Value that applies when the key is missing.
    pub absent: Absent,
    /// Kinds of the table that use the key; empty: all.
    pub kinds: &'static [&'static str],
    /// Valid values, for a key whose value is one of a few words.
    pub words: &'static [Word],
    /// Keys of the value, for a key whose value is a table or a list of tables.
    pub table: Option<&'static Table>,
}

/// The value that applies when a key is missing.
#[derive(Clone, Copy, Debug)]
pub enum Absent {
    /// None: the key is required.
    Required,
    /// The key has this value, in TOML.
    Default(&'static str),
    /// A value, or a requirement, that depends on the rest of the plan: described in Markdown.
    Depends(&'static str),
}

/// A word that a key can have as its value.
#[derive(Debug)]
pub struct Word {
    /// The word, as it is written in a plan.
    pub name: &'static str,
    /// Meaning, in Markdown.
    pub about: Doc,
}

/// The text of a doc comment.
#[derive(Clone, Copy, Debug)]
pub struct Doc(pub(super) &'static str);

impl Doc {
    /// Returns the paragraphs, each as one line.
    pub fn paragraphs(self) -> impl Iterator<Item = String> {
        self.0.split("\n\n").map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// Returns the first paragraph, without the full stop at its end.
    pub fn summary(self) -> String {
        self.paragraphs().next().unwrap_or_default().trim_end_matches('.').to_owned()
    }
}

/// A type of values.
pub(super) trait Typed {
    /// See [`Key::type_name`].
    const NAME: &'static str;
    /// See [`Key::words`].
    const WORDS: &'static [Word] = &[];
    /// See [`Key::table`].
    const TABLE: Option<&'static Table> = None;

    /// Returns `false` for the value of a key that the plan does not contain.
    fn is_given(&self) -> bool {
        true
    }
}

impl<T: Typed> Typed for Option<T> {
    const NAME: &'static str = T::NAME;
    const WORDS: &'static [Word] = T::WORDS;
    const TABLE: Option<&'static Table> = T::TABLE;

    fn is_given(&self) -> bool {
        self.is_some()
    }
}

impl<T: Typed> Typed for Vec<T> {
    const NAME: &'static str = "list";
    const WORDS: &'static [Word] = T::WORDS;
    const TABLE: Option<&'static Table> = T::TABLE;
}

impl<T: Typed> Typed for BTreeMap<String, T> {
    const NAME: &'static str = TABLES_BY_NAME;
    const TABLE: Option<&'static Table> = T::TABLE;
}

/// Type name of a table whose keys are names, and whose values are tables.
pub const TABLES_BY_NAME: &str = "tables by name";

/// Implements [`Typed`] for types whose name is all of their description.
macro_rules! typed {
    ($($type:ty: $name:literal),+ $(,)?) => {$(
        impl Typed for $type {
            const NAME: &'static str = $name;
        }
    )+};
}
pub(super) use typed;

typed! { u32: "number", bool: "true or false", String: "text" }

/// A type whose values are words.
pub(super) trait Named {
    /// Returns the word as it is written in a plan.
    fn name(self) -> &'static str;
}

/// A table as read.
pub(super) trait Keyed {
    /// Returns the keys that the plan contains.
    fn given(&self) -> Vec<&'static Key>;
}

/// Rejects keys of `table`, the `what` at `path`, that are not used with the table's kind, because they would have no
/// effect.
pub(super) fn reject_unused_keys(
    table: &impl Keyed,
    kind: impl Named,
    what: &str,
    path: &str,
) -> Result<(), PlanError> {
    let kind = kind.name();
    match table.given().iter().find(|key| !key.kinds.is_empty() && !key.kinds.contains(&kind)) {
        Some(key) => Err(PlanError::Key {
            key: format!("{path}.{}", key.name),
            line: None,
            what: format!("does not apply to the {what} `{kind}`; remove it"),
        }),
        None => Ok(()),
    }
}

/// Reads a default value.
pub(super) fn default_of<T: DeserializeOwned>(text: &str) -> T {
    let value = toml::de::ValueDeserializer::parse(text).and_then(T::deserialize);
    value.unwrap_or_else(|error| unreachable!("a declared default, {text}: {error}"))
}

/// Declares an `enum` of words that a key can have as its value.
macro_rules! words {
    ($(#[doc = $about:literal])+ $name:ident { $($(#[doc = $doc:literal])+ $variant:ident = $word:literal,)+ }) => {
        $(#[doc = $about])+
        #[derive(serde::Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
        pub(in crate::plan) enum $name {$(
            $(#[doc = $doc])+
            #[serde(rename = $word)]
            $variant,
        )+}

        impl Typed for $name {
            const NAME: &'static str = "words";
            const WORDS: &'static [Word] = &[$(
                Word {
                    name: $word,
                    about: Doc(concat!($($doc, "\n"),+)),
                },
            )+];
        }

        impl Named for $name {
            fn name(self) -> &'static str {
                Self::WORDS[self as usize].name
            }
        }
    };
}
pub(super) use words;

/// Declares a table: a structure that is read from it, and the description of its keys. A key is `name: type`, and
///
/// - `name: Option<type> => "words"`: may be missing; the words describe the result;
/// - `name: type = TOML`: may be missing; a method with the key's name returns the value or the default.
///
/// `[A B]` after the type names the kinds that use the key. Their `enum` follows the name of the table: `by Kinds`.
macro_rules! table {
    (@type $type:ty) => { $type };
    (@type $type:ty, $default:tt) => { Option<$type> };
    (@absent $default:tt) => { Absent::Default(stringify!($default)) };
    (@absent => $words:literal) => { Absent::Depends($words) };
    (@absent) => { Absent::Required };
    (@method $key:ident: $type:ty) => {};
    (@method $key:ident: $type:ty, $default:tt) => {
        /// Returns the value of the key, or its default.
        pub(in crate::plan) fn $key(&self) -> $type {
            self.$key.clone().unwrap_or_else(|| default_of(stringify!($default)))
        }
    };
    ($(#[doc = $about:literal])+ $table:ident { $($keys:tt)+ }) => {
        table! { $(#[doc = $about])+ $table by NoKinds { $($keys)+ } }
    };
    ($(#[doc = $about:literal])+ $table:ident by $kinds:ident {$(
        $(#[doc = $doc:literal])+
        $key:ident: $type:ty $([$($kind:ident)+])? $(= $default:tt)? $(=> $words:literal)?,
    )+}) => {
        $(#[doc = $about])+
        #[derive(serde::Deserialize, Clone, Debug)]
        #[serde(deny_unknown_fields)]
        pub(in crate::plan) struct $table {$(
            $(#[doc = $doc])+
            pub(in crate::plan) $key: table!(@type $type $(, $default)?),
        )+}

        impl $table {
            $(table! { @method $key: $type $(, $default)? })+
        }

        impl Typed for $table {
            const NAME: &'static str = "table";
            const TABLE: Option<&'static Table> = Some(&Table {
                about: Doc(concat!($($about, "\n"),+)),
                keys: &[$(Key {
                    name: stringify!($key),
                    type_name: <$type as Typed>::NAME,
                    about: Doc(concat!($($doc, "\n"),+)),
                    absent: table!(@absent $($default)? $(=> $words)?),
                    kinds: &[$($(
                        <$kinds as Typed>::WORDS[$kinds::$kind as usize].name,
                    )+)?],
                    words: <$type as Typed>::WORDS,
                    table: <$type as Typed>::TABLE,
                },)+],
            });
        }

        impl Keyed for $table {
            fn given(&self) -> Vec<&'static Key> {
                let given = [$(Typed::is_given(&self.$key)),+];
                let table = <Self as Typed>::TABLE;
                let keys = table.into_iter().flat_map(|table| table.keys);
                keys.zip(given).filter(|(_, is_given)| *is_given).map(|(key, _)| key).collect()
            }
        }
    };
}
pub(super) use table;
