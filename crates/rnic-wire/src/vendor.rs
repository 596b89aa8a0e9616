//! Management datagrams of our own, in a form that everybody knows to ignore.
//!
//! Source: InfiniBand Architecture volume 1, section 16.5.2: classes 0x30 to 0x4f are a vendor's, who is named by an
//! OUI; method Get is answered by GetResp. The OUI is a locally administered one, which belongs to nobody.
//!
//! ```text
//!        0               1               2               3
//!  0  | base version 1|  class 0x3f   | class version1| method        |
//!  4  |            status             |        class specific         |
//!  8  |             transaction, which the attribute gives its meaning|
//! 12  |                                                               |
//! 16  |           attribute           |           reserved            |
//! 20  |                      attribute modifier                       |
//! 24  ... 12 bytes of RMPP header, zeros: not used
//! 36  |    reserved   |                     OUI                       |
//! 40  the attribute's data
//! ```

use crate::bytes::{array, be16, put};
use crate::gsi::MAD_LEN;

/// Which half of a conversation a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Method {
    /// A question.
    Get,
    /// The answer to one.
    GetResp,
}

/// Where the attribute's data begin.
pub(crate) const DATA_AT: usize = 40;

/// A message about `attribute` without transaction and data.
pub(crate) fn head(method: Method, attribute: u16) -> [u8; MAD_LEN] {
    let mut mad = [0; MAD_LEN];
    let code = match method {
        Method::Get => METHOD_GET,
        Method::GetResp => METHOD_GET_RESP,
    };
    put(&mut mad, 0, [BASE_VERSION, CLASS, CLASS_VERSION, code]);
    put(&mut mad, 16, attribute.to_be_bytes());
    put(&mut mad, OUI_AT, OUI);
    mad
}

/// Which half of a conversation about `attribute` this is; `None` when it is something else.
pub(crate) fn method_of(mad: &[u8; MAD_LEN], attribute: u16) -> Option<Method> {
    let is_ours = mad[..3] == [BASE_VERSION, CLASS, CLASS_VERSION]
        && be16(mad, 4) == 0
        && be16(mad, 16) == attribute
        && array::<3>(mad, OUI_AT) == OUI;
    match mad[3] {
        METHOD_GET if is_ours => Some(Method::Get),
        METHOD_GET_RESP if is_ours => Some(Method::GetResp),
        _ => None,
    }
}

const BASE_VERSION: u8 = 1;
/// A vendor's class that nobody is known to use over IP.
const CLASS: u8 = 0x3f;
const CLASS_VERSION: u8 = 1;
const METHOD_GET: u8 = 0x01;
const METHOD_GET_RESP: u8 = 0x81;
const OUI_AT: usize = 37;
/// The second bit of the first byte: locally administered.
const OUI: [u8; 3] = [0x02, b'R', b'N'];
