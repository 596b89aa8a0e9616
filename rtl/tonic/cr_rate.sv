// Credit by rates: which flows have credit for their oldest address, and the waiting of those that have none.
//
// Source: Tonic, sections 3.3.2 and 4, appendix B; the model is `membership` of crates/rnic-tonic/src/cr.rs. Transmit
// (xmit) asks before and after its departure, Enqueue (enq) after this cycle's events. A flow that lacks credit for
// more than two cycles waits: the division, five cycles long, says for how many, and the wheel counts them. A flow
// whose timer has expired (due) is inserted without regard to its credit: Transmit decides.
//
//   changed_xmit_i      settings of Transmit's flow after this cycle's events, without its departure
//   own_enq_i           Enqueue works on its flow, and Transmit on another
//   stored_enq_i        settings of Enqueue's flow before this cycle's events
//   credit_enq_i        the same after them
//   is_ready_o          the oldest address of Transmit's flow may leave
//   left_credit_o       its credit after that
//   wanted_xmit_o       Transmit's flow is to be in the ready set, if it is not yet
//   due_o, flow_due_o   the flow whose timer has expired, unless another module works on it
module cr_rate #(
    parameter int unsigned FLOWS = 1024
) (
    input  logic                          clk,
    input  logic                          rst_n,
    input  logic [23:0]                   now_i,
    input  logic                          valid_xmit_i,
    input  logic                          is_extra_i,
    input  logic [$clog2(FLOWS)-1:0]      flow_xmit_i,
    input  tonic_pkg::ring_t              ring_xmit_i,
    input  tonic_pkg::credit_t            credit_xmit_i,
    input  tonic_pkg::credit_t            changed_xmit_i,
    input  logic                          leaves_i,
    input  logic                          has_entered_xmit_i,
    input  logic [tonic_pkg::COUNT_W-1:0] count_xmit_i,
    input  logic                          own_enq_i,
    input  logic [$clog2(FLOWS)-1:0]      flow_enq_i,
    input  tonic_pkg::ring_t              ring_enq_i,
    input  tonic_pkg::credit_t            stored_enq_i,
    input  tonic_pkg::credit_t            credit_enq_i,
    input  logic                          enters_i,
    input  logic [tonic_pkg::COUNT_W-1:0] count_enq_i,
    input  tonic_pkg::entry_t             entry_i,
    input  logic [1:0]                    has_turn_i,
    output logic                          is_ready_o,
    output logic [39:0]                   left_credit_o,
    output logic                          wanted_xmit_o,
    output logic                          wanted_enq_o,
    output logic                          due_o,
    output logic [$clog2(FLOWS)-1:0]      flow_due_o,
    output logic [1:0]                    waits_o
);
  localparam int unsigned F = $clog2(FLOWS);

  logic         is_due, due_xmit, due_enq;
  logic [F-1:0] flow_due;
  assign due_xmit = is_due && valid_xmit_i && flow_due == flow_xmit_i;
  assign due_enq = is_due && own_enq_i && flow_due == flow_enq_i;
  assign due_o = is_due && !due_xmit && !due_enq;
  assign flow_due_o = flow_due;

  // A command that changes credit or the time from which it grows empties the ring, so that the stored ones serve here.
  // Transmit. Whether an address leaves is known late, so both cases are computed beside that: what is lacking for the
  // next one too, and, if none leaves, for the oldest one, with settings that change in this cycle.
  logic [13:0] bytes_now, bytes_next, bytes_stay, bytes_enq, lack_next, lack_stay, lack_xmit, lack_enq;
  logic [45:0] growth_now, growth_stay, growth_enq;
  logic [46:0] grown_now, grown_stay, grown_enq, most;
  logic [39:0] credit_now;
  logic        is_soon_next, is_soon_stay, is_soon_xmit, is_soon_enq;
  cr_oldest i_oldest_now (
      .ring_i(ring_xmit_i),
      .leaves_i(1'b0),
      .enters_i(1'b0),
      .entry_i(entry_i),
      .segment_bytes_i(credit_xmit_i.segment_bytes),
      .last_bytes_i(credit_xmit_i.last_bytes),
      .bytes_o(bytes_now)
  );
  cr_growth i_growth_now (
      .since_i(credit_xmit_i.since), .now_i(now_i), .rate_i(credit_xmit_i.rate), .growth_o(growth_now)
  );
  assign grown_now = 47'(credit_xmit_i.credit) + 47'(growth_now);
  assign is_ready_o = (grown_now[46:16] >= 31'(bytes_now)) && ({credit_xmit_i.segment_bytes, 2'b00} >= 16'(bytes_now));
  assign most = {15'd0, credit_xmit_i.segment_bytes, 18'd0};
  assign credit_now = (grown_now > most) ? most[39:0] : grown_now[39:0];
  assign left_credit_o = credit_now - {10'd0, bytes_now, 16'd0};

  cr_oldest i_oldest_next (
      .ring_i(ring_xmit_i),
      .leaves_i(1'b1),
      .enters_i(has_entered_xmit_i),
      .entry_i(entry_i),
      .segment_bytes_i(changed_xmit_i.segment_bytes),
      .last_bytes_i(changed_xmit_i.last_bytes),
      .bytes_o(bytes_next)
  );
  cr_pace i_pace_next (
      .grown_i(grown_now),
      .rate_i(changed_xmit_i.rate),
      .segment_bytes_i(credit_xmit_i.segment_bytes),
      .need_i({1'b0, bytes_now} + {1'b0, bytes_next}),
      .is_soon_o(is_soon_next),
      .lack_o(lack_next)
  );

  cr_oldest i_oldest_stay (
      .ring_i(ring_xmit_i),
      .leaves_i(1'b0),
      .enters_i(has_entered_xmit_i),
      .entry_i(entry_i),
      .segment_bytes_i(changed_xmit_i.segment_bytes),
      .last_bytes_i(changed_xmit_i.last_bytes),
      .bytes_o(bytes_stay)
  );
  cr_growth i_growth_stay (
      .since_i(credit_xmit_i.since), .now_i(now_i), .rate_i(changed_xmit_i.rate), .growth_o(growth_stay)
  );
  assign grown_stay = 47'(credit_xmit_i.credit) + 47'(growth_stay);
  cr_pace i_pace_stay (
      .grown_i(grown_stay),
      .rate_i(changed_xmit_i.rate),
      .segment_bytes_i(changed_xmit_i.segment_bytes),
      .need_i({1'b0, bytes_stay}),
      .is_soon_o(is_soon_stay),
      .lack_o(lack_stay)
  );
  assign is_soon_xmit = leaves_i ? is_soon_next : is_soon_stay;
  assign lack_xmit = leaves_i ? lack_next : lack_stay;

  // Enqueue.
  cr_oldest i_oldest_enq (
      .ring_i(ring_enq_i),
      .leaves_i(1'b0),
      .enters_i(enters_i),
      .entry_i(entry_i),
      .segment_bytes_i(credit_enq_i.segment_bytes),
      .last_bytes_i(credit_enq_i.last_bytes),
      .bytes_o(bytes_enq)
  );
  cr_growth i_growth_enq (
      .since_i(stored_enq_i.since), .now_i(now_i), .rate_i(credit_enq_i.rate), .growth_o(growth_enq)
  );
  assign grown_enq = 47'(stored_enq_i.credit) + 47'(growth_enq);
  cr_pace i_pace_enq (
      .grown_i(grown_enq),
      .rate_i(credit_enq_i.rate),
      .segment_bytes_i(credit_enq_i.segment_bytes),
      .need_i({1'b0, bytes_enq}),
      .is_soon_o(is_soon_enq),
      .lack_o(lack_enq)
  );

  // Who waits. A flow in the ready set, or one that waits already, is left alone. That a flow waits is known late in a
  // cycle, so it enters the set in the next one, and is compared until then. It is not due so soon: the division takes
  // longer.
  logic [FLOWS-1:0] is_waiting_q;
  logic [1:0]       begins_q;
  logic [F-1:0]     begins_xmit_q, begins_enq_q;
  logic             waits_xmit, waits_enq;
  logic             is_free_xmit, is_free_enq, may_send_xmit, may_send_enq, wait_main, wait_xmit, wait_enq;
  assign waits_xmit = is_waiting_q[flow_xmit_i] || (begins_q[0] && begins_xmit_q == flow_xmit_i) ||
      (begins_q[1] && begins_enq_q == flow_xmit_i);
  assign waits_enq = is_waiting_q[flow_enq_i] || (begins_q[0] && begins_xmit_q == flow_enq_i) ||
      (begins_q[1] && begins_enq_q == flow_enq_i);
  assign is_free_xmit = !has_turn_i[0] && (!waits_xmit || due_xmit);
  assign is_free_enq = !has_turn_i[1] && (!waits_enq || due_enq);
  assign may_send_xmit = (count_xmit_i != '0) && is_soon_xmit;
  assign may_send_enq = (count_enq_i != '0) && is_soon_enq;
  assign wanted_xmit_o = valid_xmit_i && (may_send_xmit || due_xmit) && (!is_extra_i || is_free_xmit);
  assign wanted_enq_o = own_enq_i && (may_send_enq || due_enq) && is_free_enq;
  assign wait_main = valid_xmit_i && !is_extra_i && (count_xmit_i != '0) && !may_send_xmit && !due_xmit;
  assign wait_xmit = valid_xmit_i && is_extra_i && is_free_xmit && (count_xmit_i != '0) && !may_send_xmit && !due_xmit;
  assign wait_enq = own_enq_i && is_free_enq && (count_enq_i != '0) && !may_send_enq && !due_enq;
  assign waits_o = {wait_xmit || wait_enq, wait_main};

  always_ff @(posedge clk) begin
    begins_q <= rst_n ? {wait_enq, wait_main || wait_xmit} : 2'b00;
    begins_xmit_q <= flow_xmit_i;
    begins_enq_q <= flow_enq_i;
  end
  bit_array #(.W(FLOWS), .SETS(2), .CLEARS(1)) i_is_waiting (
      .clk(clk),
      .rst_n(rst_n),
      .set_i(begins_q),
      .set_at_i({begins_enq_q, begins_xmit_q}),
      .clear_i(is_due),
      .clear_at_i(flow_due),
      .bits_o(is_waiting_q)
  );

  // For how long.
  logic [1:0]      arm;
  logic [2*F-1:0]  arm_flow;
  logic [2*21-1:0] arm_delay;
  cr_divide #(.F(F)) i_divide_main (
      .clk(clk),
      .rst_n(rst_n),
      .valid_i(wait_main),
      .flow_i(flow_xmit_i),
      .lack_i(lack_xmit),
      .rate_i(changed_xmit_i.rate),
      .valid_o(arm[0]),
      .flow_o(arm_flow[0+:F]),
      .delay_o(arm_delay[0+:21])
  );
  cr_divide #(.F(F)) i_divide_other (
      .clk(clk),
      .rst_n(rst_n),
      .valid_i(wait_xmit || wait_enq),
      .flow_i(wait_xmit ? flow_xmit_i : flow_enq_i),
      .lack_i(wait_xmit ? lack_xmit : lack_enq),
      .rate_i(wait_xmit ? changed_xmit_i.rate : credit_enq_i.rate),
      .valid_o(arm[1]),
      .flow_o(arm_flow[F+:F]),
      .delay_o(arm_delay[21+:21])
  );
  wheel #(.FLOWS(FLOWS)) i_wheel (
      .clk(clk),
      .rst_n(rst_n),
      .now_i(now_i),
      .arm_i(arm),
      .flow_i(arm_flow),
      .delay_i(arm_delay),
      .valid_o(is_due),
      .flow_o(flow_due)
  );

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (rst_n) begin
      // Otherwise two flows begin to wait beside Transmit's.
      assert (!(wait_xmit && wait_enq));
      // Otherwise a waiting flow has a turn.
      assert (!(valid_xmit_i && !is_extra_i && waits_xmit));
      // Otherwise a flow is due in the cycle after it has begun to wait.
      assert (!(is_due && begins_q[0] && begins_xmit_q == flow_due));
      assert (!(is_due && begins_q[1] && begins_enq_q == flow_due));
    end
  end
`endif
endmodule
