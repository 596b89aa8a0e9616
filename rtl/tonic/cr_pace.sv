// Whether credit will soon suffice for a number of bytes, and how many are lacking.
//
// Source: Tonic, section 3.3.2 and appendix B; the model is crates/rnic-tonic/src/cr/rate.rs. Credit has 16 fractional
// bits, and is at most that of four segments: `grown_i` is without that bound. Since bytes and the bound have no
// fraction, whole bytes are compared. Combinational.
//
//   is_soon_o  credit suffices within two cycles
//   lack_o     one less than the number of bytes, rounded up, that is lacking; nothing when it suffices
module cr_pace (
    input  logic [46:0] grown_i,
    input  logic [22:0] rate_i,
    input  logic [13:0] segment_bytes_i,
    input  logic [14:0] need_i,
    output logic        is_soon_o,
    output logic [13:0] lack_o
);
  logic [15:0] most, soon;
  logic [14:0] one_less, lack_grown, lack_most;
  logic        is_far, is_over;

  assign most = {segment_bytes_i, 2'b00};
  // What is needed now, so that the growth of two cycles suffices; negative when that is enough.
  assign soon = {1'b0, need_i} - {8'd0, rate_i[22:16], 1'b0};
  // More than any need, and than the bound.
  assign is_far = grown_i[46:32] != 15'd0;
  assign is_over = is_far || (grown_i[31:16] >= most);

  assign is_soon_o = soon[15] || ((is_far || grown_i[31:16] >= soon) && (most >= soon));

  assign one_less = need_i - 15'd1;
  assign lack_grown = one_less - grown_i[30:16];
  assign lack_most = one_less - most[14:0];
  assign lack_o = is_over ? lack_most[13:0] : lack_grown[13:0];
endmodule
