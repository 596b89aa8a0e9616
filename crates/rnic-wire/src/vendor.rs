//! Vendor-specific management datagrams of OpenRNIC, in a form that other stacks ignore.
//!
//! Source: InfiniBand Architecture volume 1, section 16.5.2: classes 0x30 to 0x4f are vendor-specific, with the vendor
//! identified by an OUI; the response to method Get is GetResp. The OUI is a locally administered one, which is not
//! assigned to any vendor.
//!
//! ```text
//!        0               1               2               3
//!  0  | base version 1|  class 0x3f   | class version1| method        |
//!  4  |            status             |        class specific         |
//!  8  |             transaction; its meaning depends on the attribute |
//! 12  |                                                               |
//! 16  |           attribute           |           reserved            |
//! 20  |                      attribute modifier                       |
//! 24  ... 12 bytes of RMPP header, zeros: not used
//! 36  |    reserved   |                     OUI                       |
//! 40  data of the attribute
//! ```

use crate::bytes::{array, be16, put};
use crate::gsi::MAD_LEN;

/// Direction of a message: request or response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Method {
    /// The message is a request.
    Get,
    /// The response to a request.
    GetResp,
}

/// Offset of the attribute's data in the datagram, in bytes.
pub(crate) const DATA_AT: usize = 40;

/// Returns a message of `attribute` without transaction id and data.
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

/// Returns whether the message is a request or a response of `attribute`; `None` when it is a message of another kind.
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
/// A vendor-specific class without known users over IP.
const CLASS: u8 = 0x3f;
const CLASS_VERSION: u8 = 1;
const METHOD_GET: u8 = 0x01;
const METHOD_GET_RESP: u8 = 0x81;
const OUI_AT: usize = 37;
/// The second bit of the first byte marks it as locally administered.
const OUI: [u8; 3] = [0x02, b'R', b'N'];
