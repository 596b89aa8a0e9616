// IRN's timeout: the timer has expired (SIGCOMM'18, sections 4.1 and 6.2.1; mechanisms I-22, I-24).
//
// The timer runs for RTO_low at first. If it expires with `low_packets_i` or more packets in flight, it is only
// extended to RTO_high. Otherwise the recovery starts from the oldest packet: everything sent before is to be sent
// again when it becomes the oldest one, and now the packets before the highest one that is acknowledged selectively.
// The module has no clock and does not read the bitmap: the flag `timed_out` leaves that position to the next call of
// another module.
//
// Latency: none.
module irn_timeout #(
    parameter int unsigned W = 128
) (
    // RTO_low holds with fewer packets in flight than this.
    input  logic [$clog2(W):0]       low_packets_i,
    // Context: as in `irn_tx_free`, and the recovery sequence.
    input  logic [irn_pkg::ID_W-1:0] una_i,
    input  logic [irn_pkg::ID_W-1:0] next_i,
    input  logic [$clog2(W):0]       again_i,
    input  logic [$clog2(W):0]       lost_i,
    input  logic [$clog2(W):0]       presumed_i,
    input  logic [irn_pkg::ID_W-1:0] recovery_i,
    input  irn_pkg::flags_t          flags_i,
    // Context after the expiry.
    output logic [$clog2(W):0]       again_o,
    output logic [$clog2(W):0]       lost_o,
    output logic [$clog2(W):0]       presumed_o,
    output logic [irn_pkg::ID_W-1:0] recovery_o,
    output irn_pkg::flags_t          flags_o,
    // The recovery has started.
    output logic                     acts_o,
    output logic [1:0]               timer_o
);
  localparam int unsigned B = $clog2(W);

  logic [irn_pkg::ID_W-1:0] in_flight;
  logic                     is_empty, is_extended;

  assign in_flight = next_i - una_i;
  assign is_empty = (in_flight == '0);
  assign is_extended = !flags_i.extended && (in_flight >= {{irn_pkg::ID_W - B - 1{1'b0}}, low_packets_i});
  assign acts_o = !is_empty && !is_extended;

  always_comb begin
    again_o = again_i;
    lost_o = lost_i;
    presumed_o = presumed_i;
    recovery_o = recovery_i;
    flags_o = flags_i;
    timer_o = irn_pkg::KEEP;
    if (acts_o) begin
      again_o = '0;
      lost_o = {{B{1'b0}}, 1'b1};
      presumed_o = in_flight[B:0];
      recovery_o = next_i - {{irn_pkg::ID_W - 1{1'b0}}, 1'b1};
      flags_o.recovering = 1'b1;
      flags_o.timed_out = 1'b1;
      flags_o.extended = 1'b0;
      timer_o = irn_pkg::RESTART;
    end else if (!is_empty) begin
      flags_o.extended = 1'b1;
      timer_o = irn_pkg::EXTEND;
    end
  end
endmodule
