//! Bundles: structures whose fields are numbers, flags and maps, both in native code and while a function is traced
//! into a graph.

use crate::graph::{Kind, Port};
use crate::record::{Recorder, Value};

/// A field of a bundle, as described in files, circuits and reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// Name.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
}

impl Field {
    /// Returns the number of bits of a number, and zero for a map.
    pub const fn bits(&self) -> u32 {
        match self.kind {
            Kind::Bits(bits) => bits as u32,
            Kind::Map => 0,
        }
    }
}

/// A structure declared by [`bundle!`](crate::bundle!).
pub trait Bundle: Value + Default {
    /// The fields, in the order of declaration.
    const FIELDS: &'static [Field];
    /// Number of bytes that the fields occupy in a state block.
    const BYTES: usize;
    /// Number of words that the fields occupy in stimulus files and tests.
    const WORDS: usize;

    /// Declares an input for each field, named after `group` and the field.
    fn inputs(g: &Recorder, group: &str) -> Self::Form;

    /// Declares an output for each field.
    fn outputs(g: &Recorder, group: &str, form: Self::Form);

    /// Stores all fields, in order, as words.
    ///
    /// # Panics
    /// When `words` has fewer than [`Bundle::WORDS`] elements.
    fn write_words(&self, words: &mut [u64]);

    /// Reads all fields from words.
    ///
    /// # Panics
    /// When `words` has fewer than [`Bundle::WORDS`] elements.
    fn read_words(words: &[u64]) -> Self;

    /// Stores all fields into a state block.
    ///
    /// # Panics
    /// When it has fewer than [`Bundle::BYTES`] bytes.
    fn store(&self, bytes: &mut [u8]);

    /// Reads all fields from a state block.
    ///
    /// # Panics
    /// When it has fewer than [`Bundle::BYTES`] bytes.
    fn load(bytes: &[u8]) -> Self;

    /// Returns the total number of bits of all number fields.
    fn bits() -> u32 {
        Self::FIELDS.iter().map(Field::bits).sum()
    }

    /// Returns the fields as ports of a graph.
    fn ports(group: &str) -> Vec<Port> {
        let port = |field: &Field| Port { name: format!("{group}_{}", field.name), kind: field.kind };
        Self::FIELDS.iter().map(port).collect()
    }
}

/// Returns the position `at`, and advances it by `length`.
#[doc(hidden)]
#[inline]
pub fn take(at: &mut usize, length: usize) -> usize {
    let start = *at;
    *at += length;
    start
}

/// Declares a structure whose fields are numbers ([`U`](crate::U)), flags (`bool`) and maps ([`Map`](crate::Map)), and
/// the symbolic form that it has while a function is traced.
#[macro_export]
macro_rules! bundle {
    ($(#[$meta:meta])* $visibility:vis struct $name:ident {
        $($(#[$field_meta:meta])* $field:ident: $type:ty,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        $visibility struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        const _: () = {
            #[allow(unused_imports, reason = "a bundle without fields needs none of it")]
            use $crate::bundle::take;
            #[allow(unused_imports, reason = "a bundle without fields needs none of it")]
            use $crate::{Bit, Bundle, Field, Form, Leaf, Recorder, Value};

            /// The symbolic form of the structure, while a function is traced.
            #[derive(Clone, Copy)]
            pub struct Recorded {
                $($(#[$field_meta])* pub $field: <$type as Value>::Form,)*
            }

            impl Form for Recorded {
                fn join(g: &Recorder, condition: Bit, yes: Self, no: Self) -> Self {
                    Self { $($field: Form::join(g, condition, yes.$field, no.$field),)* }
                }
            }

            impl Value for $name {
                type Form = Recorded;
            }

            impl Bundle for $name {
                const FIELDS: &'static [Field] =
                    &[$(Field { name: stringify!($field), kind: <$type as Leaf>::KIND },)*];
                const BYTES: usize = 0 $(+ <$type as Leaf>::BYTES)*;
                const WORDS: usize = 0 $(+ <$type as Leaf>::WORDS)*;

                fn inputs(g: &Recorder, group: &str) -> Recorded {
                    Recorded { $($field: <$type as Leaf>::input(g, format!("{group}_{}", stringify!($field))),)* }
                }

                fn outputs(g: &Recorder, group: &str, form: Recorded) {
                    $(<$type as Leaf>::output(g, format!("{group}_{}", stringify!($field)), form.$field);)*
                }

                #[inline]
                fn write_words(&self, words: &mut [u64]) {
                    let mut at = 0;
                    let _ = &mut at;
                    $(Leaf::write_words(self.$field, &mut words[take(&mut at, <$type as Leaf>::WORDS)..]);)*
                }

                #[inline]
                fn read_words(words: &[u64]) -> Self {
                    let mut at = 0;
                    let _ = &mut at;
                    $(let $field = <$type as Leaf>::read_words(&words[take(&mut at, <$type as Leaf>::WORDS)..]);)*
                    Self { $($field,)* }
                }

                #[inline]
                fn store(&self, bytes: &mut [u8]) {
                    let bytes = &mut bytes[..Self::BYTES];
                    let mut at = 0;
                    let _ = &mut at;
                    $(Leaf::store(self.$field, &mut bytes[take(&mut at, <$type as Leaf>::BYTES)..]);)*
                }

                #[inline]
                fn load(bytes: &[u8]) -> Self {
                    let bytes = &bytes[..Self::BYTES];
                    let mut at = 0;
                    let _ = &mut at;
                    $(let $field = <$type as Leaf>::load(&bytes[take(&mut at, <$type as Leaf>::BYTES)..]);)*
                    Self { $($field,)* }
                }
            }
        };
    };
}
