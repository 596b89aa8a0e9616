// Whether a flow has tokens left: segments granted by its receiver and by timeouts, less those sent, are more than
// none.
//
// Source: Tonic, section 3.3.2. A flow may send 16 segments, a full ring, before its receiver has granted any.
// Combinational.
module cr_tokens (
    input  tonic_pkg::credit_t credit_i,
    output logic               has_tokens_o
);
  localparam logic [23:0] FIRST_GRANT = 24'd16;
  logic [23:0] granted;
  assign granted = credit_i.granted + credit_i.extra + FIRST_GRANT;
  serial_after #(.W(24)) i_after (.a_i(granted), .b_i(credit_i.sent), .after_o(has_tokens_o));
endmodule
