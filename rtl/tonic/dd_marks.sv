// The segments that a program marks for retransmission, as a map: those in its range that are sent and not passed.
//
// The model is `Answer::range` of crates/rnic-tonic/src/program.rs. Combinational. `sent_i` segments from `start_i` on
// are outstanding.
module dd_marks (
    input  logic                          mark_i,
    input  logic [23:0]                   first_i,
    input  logic [23:0]                   last_i,
    input  logic [23:0]                   start_i,
    input  logic [tonic_pkg::SIZE_W-1:0]  sent_i,
    output logic [tonic_pkg::K-1:0]       marks_o
);
  localparam int unsigned K = tonic_pkg::K;
  localparam int unsigned K_W = tonic_pkg::K_W;
  localparam int unsigned SIZE_W = tonic_pkg::SIZE_W;

  logic [23:0]       first, last;
  logic [SIZE_W-1:0] from, stop, count;
  logic              is_empty;
  logic [K-1:0]      range;

  // Offsets from the start of the window: negative ones begin with it, and `stop` ends with what is sent.
  assign first = first_i - start_i;
  assign last = last_i - start_i;
  assign from = first[23] ? '0 : first[SIZE_W-1:0];
  assign stop = (last > 24'(sent_i)) ? sent_i : last[SIZE_W-1:0];
  assign is_empty = !mark_i || last[23] || (!first[23] && (first >= 24'(stop)));
  assign count = stop - from;
  range_mask #(.W(K)) i_range (.from_i(start_i[K_W-1:0] + from[K_W-1:0]), .count_i(count), .mask_o(range));
  assign marks_o = is_empty ? '0 : range;
endmodule
