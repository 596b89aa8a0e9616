//! Reading the head of a crate.

use rnic_check::card::Card;

const CARD: &str = "//! About.\n//!\n//! ```text\n//! CRATE    rnic-x (amber: with a test)\n//! Purpose  to be\n\
                    //!          an example\n//! May use  rnic-base, rnic-wire\n//! Must not sleep\n\
                    //! ```\n//! Purpose later\n";

#[test]
fn a_card_is_read_with_continued_lines() {
    let card = Card::read(CARD).expect("there is a card");
    assert_eq!((card.name.as_str(), card.colour_word()), ("rnic-x", "amber"));
    assert_eq!(card.text("Purpose"), "to be an example");
    assert_eq!(card.may_use(), ["rnic-base", "rnic-wire"]);
    assert_eq!(card.text("Tested by"), "");
    assert_eq!(card.lines["May use"], 7);
}

#[test]
fn without_a_title_there_is_no_card() {
    assert_eq!(Card::read("//! Purpose  to be\nfn f() {}\n//! CRATE x\n"), None);
}
