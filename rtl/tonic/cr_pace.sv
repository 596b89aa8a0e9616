// Whether a flow with a rate has the credit for its oldest address, and how many bytes it lacks.
//
// Source: Tonic, section 3.3.2 and appendix B; the model is crates/rnic-tonic/src/cr/rate.rs. Credit has 16 fractional
// bits, and is at most that of four segments. `is_soon_o`: it will have it within two cycles. Combinational.
module cr_pace (
    input  logic [39:0] credit_i,
    input  logic [45:0] growth_i,
    input  logic [22:0] rate_i,
    input  logic [13:0] segment_bytes_i,
    input  logic [13:0] bytes_i,
    output logic [39:0] credit_o,
    output logic [13:0] missing_o,
    output logic        is_soon_o
);
  logic [46:0] grown, most;
  logic [30:0] missing;

  assign grown = 47'(credit_i) + 47'(growth_i);
  assign most = {15'd0, segment_bytes_i, 18'd0};
  assign credit_o = (grown > most) ? most[39:0] : grown[39:0];
  // Rounded up to whole bytes.
  assign missing = {1'b0, bytes_i, 16'hFFFF} - credit_o[30:0];
  assign missing_o = (credit_o >= {10'd0, bytes_i, 16'd0}) ? 14'd0 : missing[29:16];
  assign is_soon_o = missing_o <= {6'd0, rate_i[22:16], 1'b0};
endmodule
