// Update Queue: passes the writes of QPC manager, congestion control and SR to the contexts, in this order of priority.
//
// Source: FaSR (2025) section IV-B; mechanism R-17. All writes of a module belong together, so a module waits when one
// of them is not possible: congestion control for the manager, SR for the manager and for congestion control when it
// starts a timer, which is the only group that both write. Combinational.
module fasr_update (
    input  logic             init_i,
    input  fasr_pkg::qp_t    init_at_i,
    input  fasr_pkg::psn_t   init_rcv_nxt_i,
    input  fasr_pkg::psn_t   init_una_i,
    output logic             cc_go_o,
    input  logic             cc_next_i,
    input  logic             cc_timer_i,
    input  fasr_pkg::qp_t    cc_at_i,
    input  fasr_pkg::psn_t   cc_next_psn_i,
    input  fasr_pkg::timer_t cc_timer_value_i,
    output logic             sr_go_o,
    input  logic             sr_i,
    input  logic             sr_timer_i,
    input  fasr_pkg::qp_t    sr_at_i,
    input  fasr_pkg::sr_t    sr_value_i,
    input  fasr_pkg::timer_t sr_timer_value_i,
    output logic             write_sr_o,
    output fasr_pkg::qp_t    write_sr_at_o,
    output fasr_pkg::sr_t    write_sr_value_o,
    output logic             write_next_o,
    output fasr_pkg::qp_t    write_next_at_o,
    output fasr_pkg::psn_t   write_next_value_o,
    output logic             write_timer_o,
    output fasr_pkg::qp_t    write_timer_at_o,
    output fasr_pkg::timer_t write_timer_value_o
);
  fasr_pkg::sr_t created;
  always_comb begin
    created = '0;
    created.rcv_nxt = init_rcv_nxt_i;
    created.una = init_una_i;
  end

  assign cc_go_o = !init_i;
  assign sr_go_o = !init_i && !cc_timer_i;

  assign write_sr_o = init_i || sr_i;
  assign write_sr_at_o = init_i ? init_at_i : sr_at_i;
  assign write_sr_value_o = init_i ? created : sr_value_i;
  assign write_next_o = init_i || cc_next_i;
  assign write_next_at_o = init_i ? init_at_i : cc_at_i;
  assign write_next_value_o = init_i ? init_una_i : cc_next_psn_i;
  assign write_timer_o = init_i || cc_timer_i || sr_timer_i;
  assign write_timer_at_o = init_i ? init_at_i : (cc_timer_i ? cc_at_i : sr_at_i);
  assign write_timer_value_o = init_i ? '0 : (cc_timer_i ? cc_timer_value_i : sr_timer_value_i);
endmodule
