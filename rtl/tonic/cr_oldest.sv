// The length of a flow's oldest address after this cycle's events: `leaves_i` removes one, `enters_i` appends one.
//
// Combinational. With an empty ring the output has no meaning.
module cr_oldest (
    input  tonic_pkg::ring_t  ring_i,
    input  logic              leaves_i,
    input  logic              enters_i,
    input  tonic_pkg::entry_t entry_i,
    input  logic [13:0]       segment_bytes_i,
    input  logic [13:0]       last_bytes_i,
    output logic [13:0]       bytes_o
);
  localparam int unsigned N = tonic_pkg::N;
  localparam int unsigned N_W = tonic_pkg::N_W;
  localparam int unsigned COUNT_W = tonic_pkg::COUNT_W;
  localparam int unsigned ENTRY_W = tonic_pkg::ENTRY_W;

  logic [N-1:0]   shorts;
  logic [N_W-1:0] head;
  logic           is_short;

  generate
    for (genvar n = 0; n < N; n++) begin : g_short
      assign shorts[n] = ring_i.entries[n*ENTRY_W+ENTRY_W-1];
    end
  endgenerate
  assign head = ring_i.head + N_W'(leaves_i);
  assign is_short = (enters_i && ring_i.count == COUNT_W'(leaves_i)) ? entry_i.is_short : shorts[head];
  assign bytes_o = (is_short && last_bytes_i != 14'd0) ? last_bytes_i : segment_bytes_i;
endmodule
