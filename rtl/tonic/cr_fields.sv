// The words of `cr_context`'s stores as the state of a flow.
module cr_fields (
    input  logic [tonic_pkg::N*tonic_pkg::ENTRY_W-1:0]    entries_i,
    input  logic [tonic_pkg::N_W+tonic_pkg::COUNT_W-1:0]  place_i,
    input  logic [27:0]                                   bytes_i,
    input  logic [22:0]                                   pace_i,
    input  logic [63:0]                                   fill_i,
    input  logic [23:0]                                   granted_i,
    input  logic [23:0]                                   extra_i,
    input  logic [23:0]                                   sent_i,
    output tonic_pkg::ring_t                              ring_o,
    output tonic_pkg::credit_t                            credit_o
);
  assign ring_o.entries = entries_i;
  assign {ring_o.head, ring_o.count} = place_i;
  assign {credit_o.last_bytes, credit_o.segment_bytes} = bytes_i;
  assign credit_o.rate = pace_i;
  assign {credit_o.since, credit_o.credit} = fill_i;
  assign credit_o.granted = granted_i;
  assign credit_o.extra = extra_i;
  assign credit_o.sent = sent_i;
endmodule
