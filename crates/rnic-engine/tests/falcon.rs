//! Verbs over Falcon: every verb with every ordering, over a reliable and an unreliable wire.

#[path = "common/falcon.rs"]
mod common;

#[path = "falcon/verbs.rs"]
mod verbs;

#[path = "falcon/again.rs"]
mod again;

#[path = "falcon/endings.rs"]
mod endings;

#[path = "falcon/errors.rs"]
mod errors;

#[path = "falcon/gone.rs"]
mod gone;

#[path = "falcon/hostile.rs"]
mod hostile;

#[path = "falcon/measured.rs"]
mod measured;

#[path = "falcon/not_ready.rs"]
mod not_ready;

#[path = "falcon/rate_limits.rs"]
mod rate_limits;

#[path = "falcon/resources.rs"]
mod resources;

#[path = "falcon/room.rs"]
mod room;

#[path = "falcon/shares.rs"]
mod shares;

#[path = "falcon/turns.rs"]
mod turns;

#[path = "falcon/windows.rs"]
mod windows;

#[path = "falcon/watch.rs"]
mod watch;

#[path = "falcon/nvme.rs"]
mod nvme;
