//! All application test cases.
//!
//! `{host}` stands for the server's address and `{port}` for a free port.

/// A test case: one run of a server and a client program.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Name of the case: program, transport service, variant.
    pub name: &'static str,
    /// Command line of the server; empty when the case consists of the client alone.
    pub server: &'static str,
    /// Command line of the client.
    pub client: &'static str,
    /// Criterion of success, in addition to the exit codes.
    pub check: Check,
    /// Maximum duration, in seconds.
    pub seconds: u64,
    /// Port on which the server listens, when it cannot be configured.
    pub port: Option<u16>,
    /// True when the program uses addresses without GIDs, which reach only the same host.
    pub one_host: bool,
    /// False for unreliable services, which lose messages by design: such cases are not run where packets are lost.
    pub reliable: bool,
    /// True when the case is part of `make test`.
    pub quick: bool,
    /// True when the programs use TCP sockets: `rnic run --sockets`.
    pub sockets: bool,
    /// Programs that the scripts of the case run.
    pub needs: &'static [&'static str],
}

/// Requirement on the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Check {
    /// No requirement: the exit codes are sufficient.
    Exit,
    /// The client's output contains this.
    Says(&'static str),
    /// The lines of the client's output that begin with `result` equal those of this command, which runs without
    /// OpenRNIC.
    AsWithout(&'static str),
}

/// Open MPI over UCX only: `{mpirun}`.
pub const MPIRUN: &str = "mpirun --allow-run-as-root --oversubscribe --mca pml ucx --mca btl ^openib,vader,tcp \
                          --mca osc ^rdma";

/// Open MPI over its own shared memory: `{mpirun-alone}`.
pub const MPIRUN_ALONE: &str = "mpirun --allow-run-as-root --oversubscribe --mca pml ob1 --mca btl self,vader";

/// Returns the programs that a case needs.
pub fn needs_of(case: &Case) -> Vec<&'static str> {
    let programs = [case.server, case.client].into_iter().filter_map(program_of);
    programs
        .chain(case.needs.iter().copied())
        .map(|program| if program == "{mpirun}" { "mpirun" } else { program })
        .collect()
}

fn program_of(line: &'static str) -> Option<&'static str> {
    line.split_whitespace().find(|word| !word.contains('='))
}

const BASE: Case = Case {
    name: "",
    server: "",
    client: "",
    check: Check::Exit,
    seconds: 60,
    port: None,
    one_host: false,
    reliable: true,
    quick: false,
    sockets: false,
    needs: &[],
};

/// Defines a perftest case: the same command line at both ends, plus the server's address at the client.
macro_rules! perftest {
    ($name:literal, $line:literal $(, $field:ident: $value:expr)* $(,)?) => {
        #[allow(clippy::needless_update, reason = "a case may give every field")]
        Case {
            name: $name,
            server: concat!($line, " -p {port}"),
            client: concat!($line, " -p {port} {host}"),
            check: Check::Says("#bytes"),
            $($field: $value,)*
            ..BASE
        }
    };
}

/// Defines a pingpong case of ibverbs-utils, which checks its data.
macro_rules! pingpong {
    ($name:literal, $line:literal $(, $field:ident: $value:expr)* $(,)?) => {
        Case {
            name: $name,
            server: concat!($line, " -g 0 -p {port}"),
            client: concat!($line, " -g 0 -p {port} {host}"),
            check: Check::Says("iters in"),
            $($field: $value,)*
            ..BASE
        }
    };
}

/// Defines a qperf case.
macro_rules! qperf {
    ($name:literal, $test:literal $(, $field:ident: $value:expr)* $(,)?) => {
        Case {
            name: $name,
            server: "RNIC_LIDS=loopback qperf -lp {port}",
            client: concat!("RNIC_LIDS=loopback qperf -lp {port} {host} -t 2 ", $test, " quit"),
            check: Check::Says($test),
            one_host: true,
            $($field: $value,)*
            ..BASE
        }
    };
}

/// Defines the settings of MPICH with this rendezvous scheme.
macro_rules! mpich {
    ($scheme:literal) => {
        concat!("UCX_TLS=rc_verbs,ud_verbs,self MPIR_CVAR_NOLOCAL=1 UCX_RNDV_THRESH=8192 UCX_RNDV_SCHEME=", $scheme)
    };
}

/// All cases.
pub const CASES: &[Case] = &[
    // perftest, reliable connections.
    perftest!("ib_write_bw", "ib_write_bw -n 1000", quick: true),
    perftest!("ib_write_bw -b", "ib_write_bw -n 1000 -b"),
    perftest!("ib_write_bw -a", "ib_write_bw -a -n 100", quick: true),
    perftest!("ib_write_bw -q 8", "ib_write_bw -q 8 -n 500", quick: true),
    perftest!("ib_write_bw -D", "ib_write_bw -D 2"),
    perftest!("ib_write_bw -R", "ib_write_bw -R -n 1000", quick: true),
    perftest!("ib_write_bw -s 8", "ib_write_bw -s 8 -n 20000"),
    perftest!("ib_write_lat", "ib_write_lat -n 500", quick: true),
    perftest!("ib_write_lat -a", "ib_write_lat -a -n 50"),
    perftest!("ib_read_bw", "ib_read_bw -n 1000", quick: true),
    perftest!("ib_read_bw -b", "ib_read_bw -n 1000 -b"),
    perftest!("ib_read_bw -a", "ib_read_bw -a -n 100"),
    perftest!("ib_read_bw -q 8", "ib_read_bw -q 8 -n 500"),
    perftest!("ib_read_bw -e", "ib_read_bw -e -n 1000"),
    perftest!("ib_read_bw -D", "ib_read_bw -D 2"),
    perftest!("ib_read_bw -R", "ib_read_bw -R -n 1000"),
    perftest!("ib_read_lat", "ib_read_lat -n 500", quick: true),
    perftest!("ib_read_lat -a", "ib_read_lat -a -n 50"),
    perftest!("ib_read_lat -e", "ib_read_lat -e -n 500"),
    perftest!("ib_send_bw", "ib_send_bw -n 1000", quick: true),
    perftest!("ib_send_bw -b", "ib_send_bw -n 1000 -b"),
    perftest!("ib_send_bw -a", "ib_send_bw -a -n 100"),
    perftest!("ib_send_bw -q 8", "ib_send_bw -q 8 -n 500"),
    perftest!("ib_send_bw -e", "ib_send_bw -e -n 1000", quick: true),
    perftest!("ib_send_bw -D", "ib_send_bw -D 2"),
    perftest!("ib_send_bw SRQ", "ib_send_bw -n 1000 --use-srq", quick: true),
    perftest!("ib_send_bw SRQ -q 8", "ib_send_bw -n 500 -q 8 --use-srq"),
    perftest!("ib_send_bw -R", "ib_send_bw -R -n 1000"),
    perftest!("ib_send_lat", "ib_send_lat -n 1000", quick: true),
    perftest!("ib_send_lat -a", "ib_send_lat -a -n 100"),
    perftest!("ib_send_lat -e", "ib_send_lat -e -n 500"),
    perftest!("ib_send_lat -R", "ib_send_lat -R -n 500"),
    perftest!("ib_atomic_bw fetch and add", "ib_atomic_bw -A FETCH_AND_ADD -n 1000", quick: true),
    perftest!("ib_atomic_bw compare and swap", "ib_atomic_bw -A CMP_AND_SWAP -n 1000"),
    perftest!("ib_atomic_bw -b", "ib_atomic_bw -n 1000 -b"),
    perftest!("ib_atomic_bw -q 8", "ib_atomic_bw -n 500 -q 8"),
    perftest!("ib_atomic_bw -e", "ib_atomic_bw -n 1000 -e"),
    perftest!("ib_atomic_lat", "ib_atomic_lat -n 500"),
    perftest!("ib_atomic_lat -R", "ib_atomic_lat -R -n 500"),
    // perftest, unreliable services.
    perftest!("ib_write_bw UC", "ib_write_bw -c UC -n 1000", reliable: false),
    perftest!("ib_write_lat UC", "ib_write_lat -c UC -n 500", reliable: false),
    perftest!("ib_send_bw UC", "ib_send_bw -c UC -n 1000 -s 4096", reliable: false),
    perftest!("ib_send_lat UC", "ib_send_lat -c UC -n 500", reliable: false, quick: true),
    perftest!("ib_send_bw UD", "ib_send_bw -c UD -n 1000 -s 1024", reliable: false),
    perftest!("ib_send_lat UD", "ib_send_lat -c UD -n 500", reliable: false, quick: true),
    perftest!("ib_send_lat UD -R", "ib_send_lat -c UD -R -n 500", reliable: false),
    // ibverbs-utils: every byte compared.
    pingpong!("ibv_rc_pingpong -c", "ibv_rc_pingpong -c", quick: true),
    pingpong!("ibv_rc_pingpong -c -e", "ibv_rc_pingpong -c -e", quick: true),
    pingpong!("ibv_rc_pingpong -c -N", "ibv_rc_pingpong -c -N", quick: true),
    pingpong!("ibv_rc_pingpong -c 1 MiB", "ibv_rc_pingpong -c -s 1048576 -n 100"),
    pingpong!("ibv_uc_pingpong -c", "ibv_uc_pingpong -c", reliable: false, quick: true),
    pingpong!("ibv_ud_pingpong -c", "ibv_ud_pingpong -c -s 1024", reliable: false, quick: true),
    pingpong!("ibv_srq_pingpong -c", "ibv_srq_pingpong -c", quick: true),
    pingpong!("ibv_srq_pingpong -c -e", "ibv_srq_pingpong -c -e"),
    // rdmacm-utils.
    Case {
        name: "rping -C 100 -V",
        server: "rping -s -a {host} -p {port} -C 100 -V",
        client: "rping -c -a {host} -p {port} -C 100 -V",
        quick: true,
        ..BASE
    },
    Case {
        name: "rping -S 60000 -V",
        server: "rping -s -a {host} -p {port} -C 100 -V -S 60000",
        client: "rping -c -a {host} -p {port} -C 100 -V -S 60000",
        ..BASE
    },
    Case {
        name: "ucmatose",
        server: "ucmatose -b {host} -p {port} -c 4",
        client: "ucmatose -s {host} -p {port} -c 4",
        check: Check::Says("return status 0"),
        ..BASE
    },
    Case {
        name: "udaddy",
        server: "udaddy -b {host}",
        client: "udaddy -s {host}",
        port: Some(7_174),
        check: Check::Says("return status 0"),
        reliable: false,
        ..BASE
    },
    Case {
        name: "rdma_client",
        server: "rdma_server -p {port}",
        client: "rdma_client -s {host} -p {port}",
        check: Check::Says("end 0"),
        ..BASE
    },
    // qperf.
    qperf!("qperf rc_lat", "rc_lat", quick: true),
    qperf!("qperf rc_bw", "rc_bw"),
    qperf!("qperf rc_bi_bw", "rc_bi_bw"),
    qperf!("qperf rc_rdma_write_bw", "rc_rdma_write_bw"),
    qperf!("qperf rc_rdma_write_lat", "rc_rdma_write_lat"),
    qperf!("qperf rc_rdma_write_poll_lat", "rc_rdma_write_poll_lat"),
    qperf!("qperf rc_rdma_read_bw", "rc_rdma_read_bw"),
    qperf!("qperf rc_rdma_read_lat", "rc_rdma_read_lat"),
    qperf!("qperf rc_compare_swap_mr", "rc_compare_swap_mr"),
    qperf!("qperf rc_fetch_add_mr", "rc_fetch_add_mr"),
    qperf!("qperf ud_lat", "ud_lat", reliable: false),
    qperf!("qperf ud_bw", "ud_bw", reliable: false),
    Case {
        name: "qperf -cm1",
        server: "qperf -lp {port}",
        client: "qperf -lp {port} {host} -cm1 -t 1 rc_lat rc_bw rc_rdma_read_lat rc_compare_swap_mr quit",
        check: Check::Says("rc_compare_swap_mr"),
        ..BASE
    },
    // UCX.
    Case {
        name: "ucx tag_lat rc_verbs",
        server: "UCX_TLS=rc_verbs,ud_verbs ucx_perftest -p {port} -c 0",
        client: "UCX_TLS=rc_verbs,ud_verbs ucx_perftest -p {port} -t tag_lat -n 1000 -w 10 {host}",
        check: Check::Says("Final:"),
        ..BASE
    },
    Case {
        name: "ucx tag_bw 64 KiB rc_verbs",
        server: "UCX_TLS=rc_verbs,ud_verbs ucx_perftest -p {port}",
        client: "UCX_TLS=rc_verbs,ud_verbs ucx_perftest -p {port} -t tag_bw -s 65536 -n 2000 -w 10 {host}",
        check: Check::Says("Final:"),
        ..BASE
    },
    Case {
        name: "ucx put_bw 64 KiB rc_verbs",
        server: "UCX_TLS=rc_verbs,ud_verbs ucx_perftest -p {port}",
        client: "UCX_TLS=rc_verbs,ud_verbs ucx_perftest -p {port} -t ucp_put_bw -s 65536 -n 2000 -w 10 {host}",
        check: Check::Says("Final:"),
        ..BASE
    },
    Case {
        name: "ucx get 64 KiB rc_verbs",
        server: "UCX_TLS=rc_verbs,ud_verbs ucx_perftest -p {port}",
        client: "UCX_TLS=rc_verbs,ud_verbs ucx_perftest -p {port} -t ucp_get -s 65536 -n 500 -w 10 {host}",
        check: Check::Says("Final:"),
        ..BASE
    },
    Case {
        name: "ucx tag_lat ud_verbs",
        server: "UCX_TLS=ud_verbs ucx_perftest -p {port}",
        client: "UCX_TLS=ud_verbs ucx_perftest -p {port} -t tag_lat -n 1000 -w 10 {host}",
        check: Check::Says("Final:"),
        ..BASE
    },
    Case {
        name: "ucx tag_bw 64 KiB ud_verbs",
        server: "UCX_TLS=ud_verbs ucx_perftest -p {port}",
        client: "UCX_TLS=ud_verbs ucx_perftest -p {port} -t tag_bw -s 65536 -n 500 -w 10 {host}",
        check: Check::Says("Final:"),
        ..BASE
    },
    // libfabric.
    Case {
        name: "fi_pingpong verbs msg",
        server: "fi_pingpong -p verbs -e msg -c -B {port}",
        client: "fi_pingpong -p verbs -e msg -c -P {port} {host}",
        check: Check::Says("bytes"),
        ..BASE
    },
    Case {
        name: "fi_pingpong verbs;ofi_rxm rdm",
        server: "fi_pingpong -p verbs;ofi_rxm -e rdm -c -B {port}",
        client: "fi_pingpong -p verbs;ofi_rxm -e rdm -c -P {port} {host}",
        check: Check::Says("bytes"),
        ..BASE
    },
    // Open MPI over UCX: a collective whose results are checked.
    Case {
        name: "mpirun allreduce over UCX rc",
        server: "",
        client: "UCX_TLS=rc_verbs,ud_verbs,self {mpirun} -n 2 {collective}",
        check: Check::Says("every result right"),
        ..BASE
    },
    Case {
        name: "mpirun allreduce over UCX ud",
        server: "",
        client: "UCX_TLS=ud_verbs,self {mpirun} -n 4 {collective}",
        check: Check::Says("every result right"),
        ..BASE
    },
    Case {
        name: "mpirun, four ranks over UCX rc",
        server: "",
        client: "UCX_TLS=rc_verbs,ud_verbs,self {mpirun} -n 4 {collective-times}",
        check: Check::Says("all-gather 1048576 "),
        ..BASE
    },
    // MPICH over UCX, without its own shared memory: long messages are transferred by RDMA Read or RDMA Write.
    Case {
        name: "mpich allreduce, rendezvous by get",
        server: "",
        client: concat!(mpich!("get_zcopy"), " mpirun.mpich -n 2 {collective-mpich}"),
        check: Check::Says("every result right"),
        needs: &["mpicc.mpich"],
        ..BASE
    },
    Case {
        name: "mpich allreduce, rendezvous by put",
        server: "",
        client: concat!(mpich!("put_zcopy"), " mpirun.mpich -n 2 {collective-mpich}"),
        check: Check::Says("every result right"),
        needs: &["mpicc.mpich"],
        ..BASE
    },
    // Applications: the test compares their results with those of a run without OpenRNIC, or they compare them
    // themselves.
    Case {
        name: "LAMMPS over UCX rc",
        server: "",
        client: "UCX_TLS=rc_verbs,ud_verbs,self sh {lammps} {mpirun} -n 2",
        check: Check::AsWithout("sh {lammps} {mpirun-alone} -n 2"),
        needs: &["{mpirun}", "lmp"],
        seconds: 120,
        ..BASE
    },
    Case {
        name: "GROMACS over UCX rc",
        server: "",
        client: "UCX_TLS=rc_verbs,ud_verbs,self sh {gromacs} {mpirun} -n 2",
        check: Check::AsWithout("sh {gromacs} {mpirun-alone} -n 2"),
        needs: &["{mpirun}", "gmx", "gmx_mpi"],
        seconds: 120,
        ..BASE
    },
    Case {
        name: "hpcc over UCX rc",
        server: "",
        client: "UCX_TLS=rc_verbs,ud_verbs,self sh {hpcc} {mpirun} -n 2",
        check: Check::Says("every check passed"),
        needs: &["{mpirun}", "hpcc"],
        seconds: 120,
        ..BASE
    },
    // TCP sockets.
    Case {
        name: "iperf3",
        server: "iperf3 -s -1 -p {port}",
        client: "iperf3 -c {host} -p {port} -t 2",
        check: Check::Says("receiver"),
        sockets: true,
        ..BASE
    },
    Case {
        name: "iperf3 --bidir -P 4",
        server: "iperf3 -s -1 -p {port}",
        client: "iperf3 -c {host} -p {port} -t 2 --bidir -P 4",
        check: Check::Says("receiver"),
        sockets: true,
        ..BASE
    },
    Case {
        name: "redis",
        server: "sh {redis} server {port}",
        client: "sh {redis} client {host} {port}",
        check: Check::Says("every value right"),
        sockets: true,
        needs: &["redis-server", "redis-benchmark", "redis-cli"],
        ..BASE
    },
];
