// The segments that a program marks for retransmission, as a map: those in its range that are sent, or are being sent.
//
// The model is `Answer::range` of crates/rnic-tonic/src/program.rs. Combinational. `sent_i` segments from `start_i` on
// were outstanding before this cycle, and one more may be sent in it.
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
  logic [SIZE_W-1:0] from, stop, most;
  logic [K-1:0]      below_from, below_stop;

  // Offsets from the start of the window: negative ones begin with it, and `stop` ends with what is sent. The range is
  // what is below its end and not below its beginning.
  assign first = first_i - start_i;
  assign last = last_i - start_i;
  assign most = (sent_i == SIZE_W'(K)) ? sent_i : (sent_i + SIZE_W'(1));
  assign from = first[23] ? '0 : ((first[22:SIZE_W-1] != '0) ? SIZE_W'(K) : first[SIZE_W-1:0]);
  assign stop = (!mark_i || last[23]) ? '0 : ((last[22:0] > 23'(most)) ? most : last[SIZE_W-1:0]);
  range_mask #(.W(K)) i_from (.from_i(start_i[K_W-1:0]), .count_i(from), .mask_o(below_from));
  range_mask #(.W(K)) i_stop (.from_i(start_i[K_W-1:0]), .count_i(stop), .mask_o(below_stop));
  assign marks_o = below_stop & ~below_from;
endmodule
