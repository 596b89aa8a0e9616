// Level 1 of FaSR's pool: units of recovery state, shared by all queue pairs.
//
// Source: FaSR (2025) section III-C1; mechanism R-9. A map has a bit for each unit in use; the first free unit is
// offered. The memory is read without a register, so it is made of LUTs. A unit that is taken is written in the same
// cycle; one that is released is not read again.
module fasr_pool1 #(
    parameter int unsigned COUNT = fasr_pkg::UNITS
) (
    input  logic               clk,
    input  logic               rst_n,
    input  fasr_pkg::unit_t    read_i,
    output fasr_pkg::sr_unit_t unit_o,
    input  logic               write_i,
    input  fasr_pkg::unit_t    write_at_i,
    input  fasr_pkg::sr_unit_t unit_i,
    output logic               any_free_o,
    output fasr_pkg::unit_t    offer_o,
    input  logic               take_i,      // takes the offered unit
    input  logic               release_i,
    input  fasr_pkg::unit_t    release_at_i,
    output logic [COUNT-1:0]   taken_o
);
  logic [fasr_pkg::UNIT_BITS-1:0] kept[COUNT];
  logic [COUNT-1:0] taken_q, taken_d;

  first_set #(.W(COUNT)) i_offer (.map_i(~taken_q), .found_o(any_free_o), .position_o(offer_o));

  always_comb begin
    taken_d = taken_q;
    if (release_i) taken_d[release_at_i] = 1'b0;
    if (take_i) taken_d[offer_o] = 1'b1;
  end

  assign unit_o = kept[read_i];
  assign taken_o = taken_q;

  always_ff @(posedge clk) begin
    if (!rst_n) taken_q <= '0;
    else taken_q <= taken_d;
    if (write_i) kept[write_at_i] <= unit_i;
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (rst_n) begin
      if (take_i) assert (any_free_o);
      if (release_i) assert (taken_q[release_at_i]);
    end
  end
`endif
endmodule
