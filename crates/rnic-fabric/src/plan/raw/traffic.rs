//! Keys of groups of traffic: those of a workload, and two more.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::{Transport, Workload};
use crate::plan::schema::{Absent, Doc, Key, Table, Typed};

/// A group of traffic: a workload with a transport and a class.
#[derive(Clone, Debug)]
pub(in crate::plan) struct Traffic {
    pub(in crate::plan) workload: Workload,
    pub(in crate::plan) transport: Option<Transport>,
    pub(in crate::plan) class: Option<String>,
}

/// End of the key in the text of an error about one key of a group, whose table the parser of the plan does not see.
const KEY_END: char = '\u{1f}';

impl Traffic {
    /// Returns the key of a group that an error is about, and what is wrong with it; `None` if it is about the group.
    pub(in crate::plan) fn wrong_key(text: &str) -> Option<(&str, &str)> {
        text.split_once(KEY_END)
    }
}

impl<'de> Deserialize<'de> for Traffic {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut table = toml::Table::deserialize(deserializer)?;
        let wrong = |key: &str, error: &toml::de::Error| D::Error::custom(format!("{key}{KEY_END}{}", error.message()));
        let transport = table.remove("transport").map(Transport::deserialize).transpose();
        let transport = transport.map_err(|error| wrong("transport", &error))?;
        let class = table.remove("class").map(String::deserialize).transpose();
        let class = class.map_err(|error| wrong("class", &error))?;
        let workload = serde_path_to_error::deserialize(toml::Value::Table(table));
        let workload = workload.map_err(|error| match error.path().to_string().as_str() {
            "." => D::Error::custom(error.inner().message()),
            path => wrong(path, error.inner()),
        })?;
        Ok(Self { workload, transport, class })
    }
}

impl Typed for Traffic {
    const NAME: &'static str = "table";
    const TABLE: Option<&'static Table> = Some(&Table {
        about: Doc(
            "Groups of traffic in place of `[workload]`: several workloads at the same time, each with its own \
             transport if it needs one ([Mix transports](simulate.md#mix-transports-and-classes)). Every other key is \
             one of `[workload]`; all kinds but `tenants`, `nvme`, `chakra` and `manual` can be groups, `collective` \
             once. The report has the results of each group under its name, which has letters, digits, `-` and `_`.",
        ),
        keys: &[
            Key {
                name: "transport",
                type_name: "table, or text",
                about: Doc(
                    "The transport of the group's queue pairs, as `[transport]`. Groups of Falcon have the same \
                        options, those of the RoCE family the same `extra_header`.",
                ),
                absent: Absent::Depends("that of the plan"),
                kinds: &[],
                words: &[],
                table: None,
            },
            Key {
                name: "class",
                type_name: "text",
                about: Doc("The class of its packets, where the plan has `[classes]`."),
                absent: Absent::Depends("needed with `classes`"),
                kinds: &[],
                words: &[],
                table: None,
            },
        ],
    });
}
