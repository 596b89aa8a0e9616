// First stage of Incoming: advances the window, and records a selective acknowledgement.
//
// Source: Tonic, section 3.2.3; the model is crates/rnic-tonic/src/dd/incoming.rs. Combinational. `valid_o` is false
// for a packet that acknowledges segments that were never sent: it has no effect.
module dd_incoming0 (
    input  tonic_pkg::window_t       window_i,
    input  tonic_pkg::packet_t       packet_i,
    output logic                     valid_o,
    output tonic_pkg::acknowledged_t result_o
);
  localparam int unsigned K = tonic_pkg::K;
  localparam int unsigned K_W = tonic_pkg::K_W;

  logic [23:0]               sent, distance, steps, start, sack_offset;
  logic                      has_cum, sack_new;
  logic [K-1:0]              passed, kept;
  logic [tonic_pkg::K_W:0]   known;
  logic [K_W-1:0]            sack_position;

  assign sent = window_i.next - window_i.start;
  assign has_cum = packet_i.ack || packet_i.nack || packet_i.trimmed;
  assign distance = packet_i.cum - window_i.start;
  assign steps = (has_cum && !distance[23]) ? distance : 24'd0;
  assign valid_o = steps <= sent;
  assign start = window_i.start + steps;

  range_mask #(.W(K)) i_passed (.from_i(window_i.start[K_W-1:0]), .count_i(steps[K_W:0]), .mask_o(passed));
  popcount #(.W(K)) i_known (.map_i(window_i.acked & passed), .count_o(known));
  assign kept = window_i.acked & ~passed;

  assign sack_position = packet_i.sack[K_W-1:0];
  // Outstanding, and not passed: from the old start on, so that it need not wait for the new one.
  assign sack_offset = packet_i.sack - window_i.start;
  assign sack_new = packet_i.sacked && (sack_offset >= steps) && (sack_offset < sent) &&
      !window_i.acked[sack_position];

  always_comb begin
    result_o.old_start = window_i.start;
    result_o.start = start;
    result_o.newly = steps[8:0] - 9'(known) + 9'(sack_new);
    result_o.sack_new = sack_new;
    result_o.acked = kept;
    if (sack_new) result_o.acked[sack_position] = 1'b1;
    result_o.passed = passed;
  end
endmodule
