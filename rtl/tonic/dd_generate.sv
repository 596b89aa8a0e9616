// Segment Generation: the segment that a flow sends next, the lowest marked one, otherwise the next new one.
//
// Source: Tonic, section 3.2.3; the model is crates/rnic-tonic/src/dd/generate.rs. Combinational.
module dd_generate (
    input  tonic_pkg::window_t    window_i,
    input  tonic_pkg::duty_t      duty_i,
    output logic                  found_o,
    output tonic_pkg::generated_t segment_o
);
  localparam int unsigned K = tonic_pkg::K;
  localparam int unsigned K_W = tonic_pkg::K_W;

  logic [K-1:0]   in_window, wanted;
  logic [K_W-1:0] head, position, offset;
  logic           is_marked, is_announced;
  logic [23:0]    sent, id, after_id;
  logic [1:0]     repeats;

  assign head = window_i.start[K_W-1:0];
  range_mask #(.W(K)) i_window (.from_i(head), .count_i(window_i.size), .mask_o(in_window));
  assign wanted = duty_i.marked & ~window_i.acked & in_window;
  first_in_ring #(.W(K)) i_first (.map_i(wanted), .head_i(head), .found_o(is_marked), .position_o(position));
  assign offset = position - head;

  serial_after #(.W(24)) i_announced (.a_i(window_i.limit), .b_i(window_i.next), .after_o(is_announced));
  assign sent = window_i.next - window_i.start;
  assign repeats = {window_i.repeats_high[position], window_i.repeats_low[position]};
  assign id = is_marked ? (window_i.start + 24'(offset)) : window_i.next;
  assign after_id = id + 24'd1;

  always_comb begin
    segment_o.is_repeat = is_marked;
    segment_o.id = id;
    segment_o.times_sent = !is_marked ? 2'd0 : ((repeats == 2'd3) ? 2'd3 : (repeats + 2'd1));
    segment_o.is_short = window_i.has_short_last && (after_id == window_i.limit);
  end
  assign found_o = is_marked || (is_announced && (sent < 24'(window_i.size)));
endmodule
