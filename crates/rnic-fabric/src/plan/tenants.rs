//! The workload `tenants`: conversion from the parsed to the checked plan.

use std::sync::Arc;

use rnic_base::limits::MESSAGE_BYTES_MAX;
use rnic_base::{Duration, Time};
use rnic_engine::{RATE_LIMIT_MIN, WEIGHT_MAX};

use super::quantity::Unit;
use super::raw;
use super::traffic::{CONNECTIONS_MAX, check_between, check_traffic, named, named_sizes};
use super::{FileReader, Plan, PlanError};
use crate::workload::distribution::SizesForm;
use crate::workload::tenants::{HintPlan, TenantPlan, TenantSizes, TenantsPlan};
use crate::workload::{Between, Operation, Traffic};

pub(super) fn resolve(raw: &raw::Workload, files: &mut FileReader<'_>) -> Result<TenantsPlan, PlanError> {
    let Some(Unit(duration)) = raw.duration else {
        return Err(PlanError::value("workload.duration", "is missing"));
    };
    let until = Time::ZERO + duration;
    let tenants = raw.tenant.iter().flatten();
    let tenants = tenants
        .map(|(name, tenant)| resolve_tenant(name, tenant, until, files).map_err(|error| in_tenant(name, error)));
    Ok(TenantsPlan { tenants: tenants.collect::<Result<_, _>>()?, until })
}

/// Replaces the key of an error about a workload by that of the tenant `name`.
fn in_tenant(name: &str, error: PlanError) -> PlanError {
    match error {
        PlanError::Value { key, what } => {
            let key = key.strip_prefix("workload.").unwrap_or(key);
            PlanError::Key { key: format!("workload.tenant.{name}.{key}"), line: None, what }
        }
        PlanError::File { key, name: file, what } => {
            PlanError::Key { key: format!("workload.tenant.{name}.{key}"), line: None, what: format!("{file}: {what}") }
        }
        error => error,
    }
}

fn resolve_tenant(
    name: &str,
    raw: &raw::Tenant,
    until: Time,
    files: &mut FileReader<'_>,
) -> Result<TenantPlan, PlanError> {
    let op = named("op", "operation", &raw.op(), &Operation::ALL)?;
    Ok(TenantPlan {
        name: name.to_owned(),
        between: Between {
            from: raw.from(),
            clients: raw.clients(),
            to: raw.to(),
            servers: 1,
            queue_pairs: raw.queue_pairs(),
        },
        op,
        sizes: sizes(raw, files)?,
        depth: raw.depth(),
        start: Time::ZERO + raw.start().0,
        stop: raw.stop.map_or(until, |Unit(stop)| Time::ZERO + stop),
        stagger: raw.stagger().0,
        jitter: raw.jitter().0,
        rate: raw.rate.map(|Unit(rate)| rate),
        weight: u16::try_from(raw.weight()).unwrap_or(u16::MAX),
        rate_limit: raw.rate_limit.map(|Unit(limit)| limit),
        hints: raw.hints().iter().map(|hint| resolve_hint(hint, raw.weight())).collect(),
    })
}

fn resolve_hint(raw: &raw::Hint, weight_of_tenant: u32) -> HintPlan {
    HintPlan {
        at: Time::ZERO + raw.at.0,
        weight: u16::try_from(raw.weight.unwrap_or(weight_of_tenant)).unwrap_or(u16::MAX),
        cap: raw.cap.map(|Unit(cap)| cap),
    }
}

fn sizes(raw: &raw::Tenant, files: &mut FileReader<'_>) -> Result<TenantSizes, PlanError> {
    match (raw.message, &raw.messages, &raw.sizes) {
        (Some(Unit(message)), None, None) => Ok(TenantSizes::Listed([message.get()].into())),
        (None, Some(messages), None) => {
            Ok(TenantSizes::Listed(messages.iter().map(|Unit(message)| message.get()).collect()))
        }
        (None, None, Some(name)) => {
            named_sizes("sizes", name, SizesForm::default(), files).map(|sizes| TenantSizes::Drawn(Arc::new(sizes)))
        }
        _ => {
            let what = "is ambiguous or missing; give exactly one of `message` (one size), `messages` (a list) and \
                        `sizes` (a distribution)";
            Err(PlanError::value("message", what))
        }
    }
}

/// Checks the constraints of the workload.
pub(super) fn check(workload: &TenantsPlan, plan: &Plan) -> Result<(), PlanError> {
    let TenantsPlan { tenants, until } = workload;
    if !(1..=TENANTS_MAX).contains(&tenants.len()) {
        return Err(PlanError::value("workload.tenant", format!("must name 1 to {TENANTS_MAX} tenants")));
    }
    if workload.queue_pairs() > u64::from(CONNECTIONS_MAX) {
        let what = format!("must have at most {CONNECTIONS_MAX} queue pairs in total");
        return Err(PlanError::value("workload.tenant", what));
    }
    if let Some(pair) = tenants.windows(2).find(|pair| pair[0].name >= pair[1].name) {
        let what =
            format!("must be ordered by name, without duplicates: `{}` follows `{}`", pair[1].name, pair[0].name);
        return Err(PlanError::value("workload.tenant", what));
    }
    for tenant in tenants {
        check_tenant(tenant, *until, plan).map_err(|error| in_tenant(&tenant.name, error))?;
    }
    check_slices(workload, plan)
}

/// Returns whether `name` can be the name of a tenant or of a group of traffic in reports.
pub(super) fn is_name(name: &str) -> bool {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(is_legal)
}

fn check_tenant(tenant: &TenantPlan, until: Time, plan: &Plan) -> Result<(), PlanError> {
    let wrong = |key, what: String| Err(PlanError::value(key, what));
    if !is_name(&tenant.name) {
        let what = format!("the name must have 1 to {NAME_LEN_MAX} letters, digits, `-` and `_`");
        return Err(PlanError::Key { key: format!("workload.tenant.{:?}", tenant.name), line: None, what });
    }
    check_between(&tenant.between, plan.topology.hosts())?;
    if tenant.op.is_atomic() {
        return wrong("op", "must be write, write-imm, send or read".to_owned());
    }
    check_sizes(&tenant.sizes)?;
    let largest = match &tenant.sizes {
        TenantSizes::Listed(sizes) => sizes.iter().copied().max().unwrap_or(0),
        TenantSizes::Drawn(distribution) => distribution.largest(),
    };
    let (op, depth) = (tenant.op, tenant.depth);
    check_traffic(&Traffic { op, message_bytes: largest, depth, ..Traffic::ONE_MESSAGE }, plan)?;
    if tenant.stop > until {
        return wrong("stop", "must be at most `workload.duration`".to_owned());
    }
    if tenant.stop <= tenant.start {
        return wrong("stop", format!("must be after `start`, {}", tenant.start.since(Time::ZERO)));
    }
    if tenant.last_start() >= tenant.stop {
        let stop = tenant.stop.since(Time::ZERO);
        return wrong("stagger", format!("makes the last queue pair join after `stop`, {stop}, with `jitter`"));
    }
    let line = plan.host_links.rate;
    if tenant.rate.is_some_and(|rate| rate.as_bps() == 0) {
        return wrong("rate", "must be above zero".to_owned());
    }
    if !(1..=WEIGHT_MAX).contains(&tenant.weight) {
        return wrong("weight", format!("must be 1 to {WEIGHT_MAX}"));
    }
    if tenant.rate_limit.is_some_and(|limit| !(RATE_LIMIT_MIN..=line).contains(&limit)) {
        return wrong("rate_limit", format!("must be {RATE_LIMIT_MIN} to {line}, the rate of the hosts' links"));
    }
    if tenant.hints.iter().any(|hint| !(1..=WEIGHT_MAX).contains(&hint.weight)) {
        return wrong("hints", format!("must have weights of 1 to {WEIGHT_MAX}"));
    }
    if tenant.hints.iter().any(|hint| hint.cap.is_some_and(|cap| !(RATE_LIMIT_MIN..=line).contains(&cap))) {
        return wrong("hints", format!("must have caps of {RATE_LIMIT_MIN} to {line}, the rate of the hosts' links"));
    }
    if !tenant.hints.is_sorted_by(|one, next| one.at < next.at) || tenant.hints.len() > HINTS_MAX {
        return wrong("hints", format!("must be at most {HINTS_MAX}, each later than the one before"));
    }
    Ok(())
}

fn check_sizes(sizes: &TenantSizes) -> Result<(), PlanError> {
    let TenantSizes::Listed(sizes) = sizes else { return Ok(()) };
    let is_legal = |size: &u64| (1..=MESSAGE_BYTES_MAX).contains(size);
    match &sizes[..] {
        [] => Err(PlanError::value("messages", "must have at least one size")),
        [message] if !is_legal(message) => {
            Err(PlanError::value("message", format!("must be 1 to {MESSAGE_BYTES_MAX} bytes")))
        }
        sizes if !sizes.iter().all(is_legal) => {
            Err(PlanError::value("messages", format!("must be 1 to {MESSAGE_BYTES_MAX} bytes each")))
        }
        _ => Ok(()),
    }
}

/// Checks that the slices of all queue pairs fit into memory.
fn check_slices(workload: &TenantsPlan, plan: &Plan) -> Result<(), PlanError> {
    let Some(slice) = plan.run.slice.filter(|slice| *slice > Duration::ZERO) else { return Ok(()) };
    let slices = workload.until.min(plan.run.limit).as_ps() / slice.as_ps() + 1;
    if slices.saturating_mul(workload.queue_pairs()) <= SLICE_VALUES_MAX {
        return Ok(());
    }
    let what = format!(
        "is too short: {slices} slices of {} queue pairs are more than {SLICE_VALUES_MAX} values",
        workload.queue_pairs()
    );
    Err(PlanError::value("run.slice", what))
}

/// Maximum number of hints of a tenant.
const HINTS_MAX: usize = 1_000;

/// Maximum number of tenants, each of which has its own part of the report.
const TENANTS_MAX: usize = 1_024;
/// Maximum number of bytes of a name.
pub(super) const NAME_LEN_MAX: usize = 32;
/// Maximum number of slices of all queue pairs together: each has a few numbers of eight bytes.
const SLICE_VALUES_MAX: u64 = 1 << 22;

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = r#"
        topology = { kind = "star", hosts = 4 }
        links = { rate = "100Gbps", delay = "500ns" }
        switch = { model = "shared-buffer", buffer = "16MB" }
        transport = { name = "roce-gbn" }
        [workload]
        kind = "tenants"
        duration = "5ms"
        [workload.tenant.small]
        message = "4KB"
        [workload.tenant.large]
        messages = ["64KB", "1MB"]
        queue_pairs = 3
        from = 1
        to = 2
        start = "1ms"
        weight = 4
        rate_limit = "10Gbps"
    "#;

    fn read(overrides: &[(&str, &str)]) -> Result<Plan, PlanError> {
        Plan::from_toml_with(PLAN, overrides, &mut |_| Err("no such file".to_owned()))
    }

    #[test]
    fn tenants_are_read_in_the_order_of_names() {
        let plan = read(&[("workload.tenant.small.stop", "3ms")]).expect("the plan is valid");
        let crate::workload::WorkloadPlan::Tenants(workload) = plan.workload else { panic!("not tenants") };
        let [large, small] = &workload.tenants[..] else { panic!("{workload:?}") };
        assert_eq!((&large.name[..], &small.name[..], workload.until), ("large", "small", Time::from_us(5_000)));
        assert_eq!((large.start, large.stop), (Time::from_us(1_000), Time::from_us(5_000)));
        assert_eq!((small.start, small.stop, small.depth, small.weight), (Time::ZERO, Time::from_us(3_000), 1, 1));
        assert_eq!(large.sizes, TenantSizes::Listed([64_000, 1_000_000].into()));
        assert_eq!((large.between.from, large.between.to, large.between.queue_pairs), (1, 2, 3));
        assert_eq!((large.weight, large.rate_limit.map(|limit| limit.as_bps())), (4, Some(10_000_000_000)));
    }

    #[test]
    fn hints_are_checked() {
        for (hints, expected) in [
            ("[{ at = \"1ms\", weight = 0 }]", "hints: must have weights of 1 to"),
            ("[{ at = \"1ms\", cap = \"1kbps\" }]", "hints: must have caps of"),
            ("[{ at = \"1ms\" }, { at = \"1ms\" }]", "hints: must be at most 1000, each later"),
        ] {
            let error = read(&[("workload.tenant.small.hints", hints)]).expect_err(hints).to_string();
            assert!(error.contains(&format!("workload.tenant.small.{expected}")), "{error}");
        }
    }

    #[test]
    fn errors_name_the_tenant_and_the_key() {
        let cases = [
            ("small.queue_pairs", "0", "workload.tenant.small.queue_pairs: must be above zero"),
            ("small.from", "9", "workload.tenant.small.from: is not a host of this topology"),
            ("small.to", "4", "workload.tenant.small.to: is not a host of this topology"),
            ("small.to", "0", "workload.tenant.small.to: overlaps with the clients"),
            ("small.clients", "9", "workload.tenant.small.clients: must be 1 to 4"),
            ("small.op", "fly", "workload.tenant.small.op: unknown operation `fly`"),
            ("small.op", "fetch-add", "workload.tenant.small.op: must be write, write-imm, send or read"),
            ("small.message", "0", "workload.tenant.small.message: must be 1 to"),
            ("small.message", "3GiB", "workload.tenant.small.message: must be 1 to"),
            ("small.messages", "[\"1KB\"]", "workload.tenant.small.message: is ambiguous or missing"),
            ("large.messages", "[]", "workload.tenant.large.messages: must have at least one size"),
            ("large.messages", "[\"1KB\", 0]", "workload.tenant.large.messages: must be 1 to"),
            ("all", "{}", "workload.tenant.all.message: is ambiguous or missing"),
            ("all", "{ sizes = \"big\" }", "workload.tenant.all.sizes: unknown distribution `big`"),
            ("all", "{ sizes = \"big.csv\" }", "workload.tenant.all.sizes: big.csv: no such file"),
            ("all", "{ sizes = \"uniform:2KB-1KB\" }", "workload.tenant.all.sizes: `uniform:2KB-1KB`: the lower size"),
            ("small.depth", "0", "workload.tenant.small.depth: must be 1 to"),
            ("small.start", "5ms", "workload.tenant.small.stop: must be after `start`, 5 ms"),
            ("small.stop", "6ms", "workload.tenant.small.stop: must be at most `workload.duration`"),
            ("large.stop", "1ms", "workload.tenant.large.stop: must be after `start`, 1 ms"),
            (
                "large.stagger",
                "2ms",
                "workload.tenant.large.stagger: makes the last queue pair join after `stop`, 5 ms",
            ),
            ("large.jitter", "4ms", "workload.tenant.large.stagger: makes the last queue pair join after"),
            ("small.rate", "0", "workload.tenant.small.rate: must be above zero"),
            ("small.weight", "0", "workload.tenant.small.weight: must be 1 to 1000"),
            ("small.weight", "1001", "workload.tenant.small.weight: must be 1 to 1000"),
            ("small.rate_limit", "1kbps", "workload.tenant.small.rate_limit: must be 1 Mbit/s to 100 Gbit/s"),
            ("small.rate_limit", "101Gbps", "workload.tenant.small.rate_limit: must be 1 Mbit/s to 100 Gbit/s"),
            ("small.speed", "1", "workload.tenant.small.speed: unknown key `speed`"),
            ("\"a b\"", "{ message = \"1KB\" }", "the name must have 1 to 32 letters"),
        ];
        for (key, value, expected) in cases {
            let error = match key {
                // An override cannot quote a name.
                "\"a b\"" => read(&[("workload.tenant", "{ \"a b\" = { message = \"1KB\" } }")]),
                key => read(&[(&format!("workload.tenant.{key}"), value)]),
            };
            let error = error.expect_err(key).to_string();
            assert!(error.contains(expected) && !error.contains('\n'), "{key} = {value}: {error}");
        }
        for (key, value, expected) in [
            ("workload.tenant", "{}", "workload.tenant: must name 1 to 1024 tenants"),
            ("workload.tenant.small.queue_pairs", "131072", "workload.tenant: must have at most 131072 queue pairs"),
            ("workload.op", "write", "workload.op: does not apply to the workload `tenants`"),
            ("transport", "{ name = \"falcon\", ordering = \"unordered\" }", "transport.ordering: must be `ordered`"),
        ] {
            let error = read(&[(key, value)]).expect_err(key).to_string();
            assert!(error.contains(expected), "{key} = {value}: {error}");
        }
        let many = [("workload.tenant.small.queue_pairs", "100"), ("run", "{ slice = \"50ns\", limit = \"5ms\" }")];
        let error = read(&many).expect_err("the slices do not fit into memory").to_string();
        assert!(error.contains("run.slice: is too short: 100001 slices of 103 queue pairs"), "{error}");
        let twice = PLAN.replace("[workload.tenant.large]", "[workload.tenant.small]");
        let error = Plan::from_toml(&twice).expect_err("two tenants have the same name").to_string();
        assert!(error.contains("plan, line") && error.contains("duplicate key"), "{error}");
        let without = PLAN.replace("duration = \"5ms\"", "");
        let error = Plan::from_toml(&without).expect_err("the workload has no end").to_string();
        assert!(error.contains("workload.duration: is missing"), "{error}");
    }
}
