// Settings of a flow after the events of a cycle, without a departure.
//
// The model is crates/rnic-tonic/src/cr/merge.rs: rates and totals of tokens from data delivery, then a command, which
// replaces what it sets. A receiver's total that grows by more than 4096 segments is not believed. Combinational.
module cr_settings (
    input  tonic_pkg::credit_t     credit_i,
    input  logic                   has_inc_i,
    input  tonic_pkg::parameters_t inc_i,
    input  logic                   has_per_i,
    input  tonic_pkg::parameters_t per_i,
    input  logic                   has_command_i,
    input  tonic_pkg::forward_t    command_i,
    input  logic [22:0]            first_rate_i,
    input  logic [23:0]            now_i,
    output tonic_pkg::credit_t     credit_o
);
  localparam logic HAS_RATE = tonic_user_pkg::SCHEME == tonic_pkg::SCHEME_RATE;
  localparam logic [23:0] GRANT_STEP_MAX = 24'd4096;

  logic        is_add, is_remove, is_limit, is_bytes, is_believed;
  logic [23:0] step;
  assign is_add = has_command_i && (command_i.kind == tonic_pkg::COMMAND_ADD);
  assign is_remove = has_command_i && (command_i.kind == tonic_pkg::COMMAND_REMOVE);
  assign is_limit = has_command_i && (command_i.kind == tonic_pkg::COMMAND_LIMIT);
  assign is_bytes = has_command_i && (command_i.kind == tonic_pkg::COMMAND_SEGMENT_BYTES);
  assign step = inc_i.grant - credit_i.granted;
  assign is_believed = has_inc_i && inc_i.has_grant && (step <= GRANT_STEP_MAX);

  always_comb begin
    credit_o = credit_i;
    if (has_inc_i && inc_i.has_rate) credit_o.rate = inc_i.rate;
    if (has_per_i && per_i.has_rate) credit_o.rate = per_i.rate;
    if (is_believed) credit_o.granted = inc_i.grant;
    if (has_per_i) credit_o.extra = credit_i.extra + 24'(per_i.extra);
    if (is_add || is_remove) credit_o = '0;
    if (is_add || is_bytes) credit_o.segment_bytes = command_i.bytes;
    if (is_add && HAS_RATE) begin
      credit_o.rate = first_rate_i;
      credit_o.credit = {8'd0, command_i.bytes, 18'd0};
      credit_o.since = now_i;
    end
    if (is_limit) credit_o.last_bytes = command_i.bytes;
  end
endmodule
